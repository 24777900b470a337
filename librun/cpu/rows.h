// Rows: tensors as contiguous rows along one axis, read and written in the type of the computation.
//
// copied only if it is not laid out so already
//     ResultRows out(call, call.result(), axis);
// half precision becomes float, a row at a time
//     RowWriter<float> y(call, out.tensor());
//     for_rows(call, in, [&](int64_t row, int thread) {
//       const float* from = x.row(row, thread);
//       float* to = y.row(row, thread);
//       ...
//       y.done(row, thread);
//     });
//     out.store(call);
#pragma once

#include "librun/cpu/fill.h"
#include "librun/element.h"

namespace sg::cpu {

struct Rows {
  Tensor tensor;  // contiguous
  int64_t count = 0, length = 0;
};

Rows rows_of(KernelCall& call, const Tensor& t, int64_t axis);
Rows rows_of(KernelCall& call, const Tensor& t, int64_t axis, DType dtype);

// A contiguous tensor as rows of `length` elements.
Rows rows_of_length(const Tensor& t, int64_t length);

// A result as rows: its own memory if the layout fits, else scratch memory that `store` copies.
class ResultRows {
 public:
  ResultRows(KernelCall& call, const Tensor& result, int64_t axis);
  const Tensor& tensor() const { return rows_; }
  void store(KernelCall& call) const;

 private:
  Tensor target_, rows_;
};

// Calls fn(row, thread) for every row, on all threads.
template <class Fn>
void for_rows(KernelCall& call, int64_t count, int64_t length, const Fn& fn) {
  int64_t grain = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(length, 1));
  call.team().parallel_for_indexed(count, grain, [&](int thread, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) fn(row, thread);
  });
}

// The type in which rows of floats are computed: double if a tensor involved is f64.
template <class C>
inline constexpr DType kDTypeOf = std::is_same_v<C, double> ? DType::f64 : DType::f32;

template <class Fn>  // fn.template operator()<C>()
void visit_compute(DType t, const Fn& fn) {
  if (t == DType::f64) fn.template operator()<double>();
  else fn.template operator()<float>();
}

// The rows of a contiguous tensor of a floating dtype as C; others are converted in a buffer per thread.
template <class C>
class RowReader {
 public:
  RowReader(KernelCall& call, const Tensor& t, int64_t length);
  const C* row(int64_t row, int thread) const { return piece(row * length_, length_, thread); }
  // Elements [first, first + n) of the tensor, n <= length.
  const C* piece(int64_t first, int64_t n, int thread) const {
    if (!buffer_) return reinterpret_cast<const C*>(data_) + first;
    C* to = buffer_ + thread * length_;
    convert_(data_, first, to, n);
    return to;
  }

 private:
  const std::byte* data_;
  int64_t length_;
  C* buffer_ = nullptr;
  void (*convert_)(const std::byte*, int64_t, C*, int64_t) = nullptr;
};

template <class C>
class RowWriter {
 public:
  RowWriter(KernelCall& call, const Tensor& t, int64_t length);
  C* row(int64_t row, int thread) const { return piece(row * length_, thread); }
  void done(int64_t row, int thread) const { done_piece(row * length_, length_, thread); }
  // From element `first` on, up to `length` elements.
  C* piece(int64_t first, int thread) const {
    return buffer_ ? buffer_ + thread * length_ : reinterpret_cast<C*>(data_) + first;
  }
  void done_piece(int64_t first, int64_t n, int thread) const {
    if (buffer_) convert_(buffer_ + thread * length_, data_, first, n);
  }

 private:
  std::byte* data_;
  int64_t length_;
  C* buffer_ = nullptr;
  void (*convert_)(const C*, std::byte*, int64_t, int64_t) = nullptr;
};

extern template class RowReader<float>;
extern template class RowReader<double>;
extern template class RowWriter<float>;
extern template class RowWriter<double>;

// Sums over a row in double, in a fixed order: blocks of 512 elements in 32 interleaved lanes each.
double row_sum(const float* x, int64_t n);
double row_sum(const double* x, int64_t n);
double row_dot(const float* x, const float* y, int64_t n);
double row_dot(const double* x, const double* y, int64_t n);
double row_square_distance(const float* x, double center, int64_t n);  // sum of (x - center)^2
double row_square_distance(const double* x, double center, int64_t n);
float row_max(const float* x, int64_t n);  // NaN if there is one; -inf if empty
double row_max(const double* x, int64_t n);

}  // namespace sg::cpu
