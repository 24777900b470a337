#include "librun/cpu/rows.h"

#include <cmath>
#include <limits>

#include "librun/cpu/isa.h"
#include "librun/cpu/lanes.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

template <class T, class C>
SG_CLONES void widen(const std::byte* data, int64_t first, C* to, int64_t n) {
  const T* from = reinterpret_cast<const T*>(data) + first;
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(static_cast<Compute<T>>(from[i]));
}

template <class T, class C>
SG_CLONES void narrow(const C* from, std::byte* data, int64_t first, int64_t n) {
  T* to = reinterpret_cast<T*>(data) + first;
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(static_cast<Compute<T>>(from[i]));
}

}  // namespace

Rows rows_of(KernelCall& call, const Tensor& t, int64_t axis) { return rows_of(call, t, axis, t.dtype); }

Rows rows_of(KernelCall& call, const Tensor& t, int64_t axis, DType dtype) {
  Tensor last = contiguous_as(call, axis_last(t, axis), dtype);
  return rows_of_length(last, last.dim(-1));
}

Rows rows_of_length(const Tensor& t, int64_t length) { return {t, length == 0 ? 0 : t.elements() / length, length}; }

ResultRows::ResultRows(KernelCall& call, const Tensor& result, int64_t axis) : target_(axis_last(result, axis)) {
  rows_ =
      target_.is_contiguous() && !target_.conjugate ? target_ : call.scratch().tensor(target_.dtype, target_.sizes());
}

void ResultRows::store(KernelCall& call) const {
  if (rows_.data != target_.data) copy(call, target_, rows_);
}

template <class C>
RowReader<C>::RowReader(KernelCall& call, const Tensor& t, int64_t length) : data_(t.data), length_(length) {
  if (t.dtype == kDTypeOf<C>) return;
  buffer_ = call.scratch().template take<C>(length * call.team().size());
  visit_floating(t.dtype, [&]<class T>() { convert_ = widen<T, C>; });
}

template <class C>
RowWriter<C>::RowWriter(KernelCall& call, const Tensor& t, int64_t length) : data_(t.data), length_(length) {
  if (t.dtype == kDTypeOf<C>) return;
  buffer_ = call.scratch().template take<C>(length * call.team().size());
  visit_floating(t.dtype, [&]<class T>() { convert_ = narrow<T, C>; });
}

template class RowReader<float>;
template class RowReader<double>;
template class RowWriter<float>;
template class RowWriter<double>;

SG_CLONES double row_sum(const float* x, int64_t n) {
  return sum_lanes(n, [=](int64_t i) { return static_cast<double>(x[i]); });
}
SG_CLONES double row_sum(const double* x, int64_t n) {
  return sum_lanes(n, [=](int64_t i) { return x[i]; });
}
SG_CLONES double row_dot(const float* x, const float* y, int64_t n) {
  return sum_lanes(n, [=](int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(y[i]); });
}
SG_CLONES double row_dot(const double* x, const double* y, int64_t n) {
  return sum_lanes(n, [=](int64_t i) { return x[i] * y[i]; });
}
SG_CLONES double row_square_distance(const float* x, double center, int64_t n) {
  return sum_lanes(n, [=](int64_t i) {
    double d = static_cast<double>(x[i]) - center;
    return d * d;
  });
}
SG_CLONES double row_square_distance(const double* x, double center, int64_t n) {
  return sum_lanes(n, [=](int64_t i) {
    double d = x[i] - center;
    return d * d;
  });
}
SG_CLONES float row_max(const float* x, int64_t n) { return max_lanes(x, n); }
SG_CLONES double row_max(const double* x, int64_t n) { return max_lanes(x, n); }

}  // namespace sg::cpu
