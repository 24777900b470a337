// A kernel called by hand: for tests of kernels against naive definitions.
//
//     test::Buffer<float> a({2, 3}, {1, 2, 3, 4, 5, 6}), out({2});
//     test::call("aten.sum.dim_IntList", {{"self", a}, {"dim", test::ints({1})}, {"keepdim", false}}, {out});
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "librun/element.h"
#include "librun/kernel.h"

namespace sg::test {

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  else if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, F16>) return DType::f16;
  else if constexpr (std::is_same_v<T, BF16>) return DType::bf16;
  else if constexpr (std::is_same_v<T, int64_t>) return DType::i64;
  else if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
  else if constexpr (std::is_same_v<T, int16_t>) return DType::i16;
  else if constexpr (std::is_same_v<T, int8_t>) return DType::i8;
  else if constexpr (std::is_same_v<T, uint8_t>) return DType::u8;
  else if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else if constexpr (std::is_same_v<T, F8<work::Eighth::e4m3fn>>) return DType::f8e4m3fn;
  else if constexpr (std::is_same_v<T, F8<work::Eighth::e5m2>>) return DType::f8e5m2;
  else if constexpr (std::is_same_v<T, C64>) return DType::c64;
  else return DType::c128;
}

// A tensor with its memory. Strides other than contiguous ones, and an offset, may be given; the memory is as large as
// they need. Elements are set in logical (row-major) order.
template <class T>
class Buffer {
 public:
  Buffer(std::vector<int64_t> shape, std::vector<T> values = {}, std::vector<int64_t> stride = {}, int64_t offset = 0) {
    view_ = make_tensor(nullptr, dtype_of<T>(), shape);
    for (size_t i = 0; i < stride.size(); ++i) view_.stride[i] = stride[i];
    memory_.resize(static_cast<size_t>(extent_bytes(view_) + offset * static_cast<int64_t>(sizeof(T))) + sizeof(T));
    view_.data = memory_.data() + offset * static_cast<int64_t>(sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) at(static_cast<int64_t>(i)) = values[i];
  }
  Buffer(Buffer&&) = default;
  const Tensor& tensor() const { return view_; }
  T& at(int64_t element) {  // by logical index
    int64_t offset = 0;
    for (int i = view_.rank - 1; i >= 0; --i) {
      offset += element % view_.dim(i) * view_.step(i);
      element /= view_.dim(i);
    }
    return view_.template as<T>()[offset];
  }
  std::vector<T> values() {
    std::vector<T> out;
    for (int64_t i = 0; i < view_.elements(); ++i) out.push_back(at(i));
    return out;
  }

 private:
  std::vector<std::byte> memory_;
  Tensor view_;
};

struct Argument {
  std::string_view name;
  ParamValue value;

  template <class T>
  Argument(std::string_view n, const Buffer<T>& b) : name(n) {
    value.kind = ParamValue::Kind::tensor, value.tensor = b.tensor();
  }
  Argument(std::string_view n, const Tensor& t) : name(n) { value.kind = ParamValue::Kind::tensor, value.tensor = t; }
  Argument(std::string_view n, bool v) : name(n) { number(Scalar::boolean(v)); }
  Argument(std::string_view n, int v) : name(n) { number(Scalar::integer(v)); }
  Argument(std::string_view n, int64_t v) : name(n) { number(Scalar::integer(v)); }
  Argument(std::string_view n, double v) : name(n) { number(Scalar::floating(v)); }
  Argument(std::string_view n, Scalar v) : name(n) { number(v); }
  Argument(std::string_view n, DType v) : name(n) { value.kind = ParamValue::Kind::dtype, value.dtype = v; }
  Argument(std::string_view n, const char* v) : name(n) { value.kind = ParamValue::Kind::text, value.text = v; }
  Argument(std::string_view n, ParamValue v) : name(n), value(std::move(v)) {}

 private:
  void number(Scalar v) { value.kind = ParamValue::Kind::scalar, value.scalar = v; }
};

ParamValue ints(std::vector<int64_t> values);
ParamValue tensors(std::vector<Tensor> list);  // a tensor of dtype none is an argument left out

// Runs the CPU kernel of `op`; parameters that are not named take the schema's defaults. A missing kernel is an error.
Status call(std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results, int threads = 1,
            Numerics numerics = Numerics::fast);
// The same where products of bf16 keep the order of k (KernelCall::ordered_sums).
Status call_in_order(std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results,
                     int threads = 1);
// The same for an op that draws from a stream.
Status draw(std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results,
            const RandomStream& stream, int threads = 1, Numerics numerics = Numerics::fast);

// The largest distance of `got` from `expected`, as a part of the largest expected size, which is at least
// `least_scale`. Equal infinities are no distance; a NaN is an infinite one.
template <class T>
double relative_error(Buffer<T>& got, const std::vector<double>& expected, double least_scale = 1e-30) {
  double error = 0, scale = least_scale;
  for (size_t i = 0; i < expected.size(); ++i) {
    auto x = static_cast<double>(static_cast<Compute<T>>(got.at(static_cast<int64_t>(i))));
    if (std::isfinite(expected[i])) scale = std::max(scale, std::abs(expected[i]));
    if (x == expected[i]) continue;
    error = std::max(error, std::isnan(x) ? std::numeric_limits<double>::infinity() : std::abs(x - expected[i]));
  }
  return error / scale;
}

}  // namespace sg::test
