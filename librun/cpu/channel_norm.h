// What group norm and batch norm share. Elements are read and written in place, and computed in double.
#pragma once

#include <initializer_list>

#include "librun/cpu/fill.h"
#include "librun/kernel.h"

namespace sg::cpu {

// A tensor argument as doubles; null if it is not given.
const double* optional_doubles(KernelCall& call, std::string_view name);

// A result to fill with doubles and store; empty if it is not wanted.
class Wanted {
 public:
  Wanted(KernelCall& call, size_t i, std::initializer_list<int64_t> shape) : call_(call), i_(i) {
    if (i >= call.result_count() || call.result(i).is_none() || call.result(i).elements() == 0) return;
    tensor_ = call.scratch().tensor(DType::f64, std::span<const int64_t>(shape.begin(), shape.size()));
    fill(call, tensor_, Scalar::integer(0));
  }
  double* data() const { return tensor_.is_none() ? nullptr : tensor_.as<double>(); }
  void store() const {
    if (!tensor_.is_none())
      copy(call_, call_.result(i_), make_tensor(tensor_.data, DType::f64, call_.result(i_).sizes()));
  }

 private:
  KernelCall& call_;
  size_t i_;
  Tensor tensor_;
};

// Whether a norm of `input` is computed by vectors of its innermost channels, in place, with tensors of the same type.
bool has_inner_channels(const Tensor& input, std::initializer_list<const Tensor*> others);

// `n` numbers, the same if none are given.
const double* numbers_or(KernelCall& call, const double* given, int64_t n, double otherwise);

// --- rows of n elements, float or double ---

// to = (x - mean) * rstd * scale + shift
template <class C>
void normalize_row(const C* x, double mean, double rstd, double scale, double shift, C* to, int64_t n);

// The sum of grad * (x - center).
template <class C>
double centered_dot_of_row(const C* grad, const C* x, double center, int64_t n);

// A channel's coefficients of the gradient: to = rstd * (grad * scale - shift - (x - mean) * slope)
struct ChannelGradient {
  double mean, rstd, scale, shift, slope;
};

template <class C>
void input_gradient_of_row(const C* grad, const C* x, ChannelGradient by, C* to, int64_t n);

}  // namespace sg::cpu
