#include "librun/cpu/resample_lines.h"

#include <algorithm>

#include "librun/cpu/isa.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

// Weighted lines: the taps of one position.
struct LineSum {
  int64_t taps;
  const int64_t* index;
  const double* weight;
};

LineSum sum_at(const Taps& taps, int64_t position) {
  const int64_t* begin = taps.begin.data() + position;
  return {begin[1] - begin[0], taps.index.data() + begin[0], taps.weight.data() + begin[0]};
}

// to = the sum of weighted lines of n elements, each tap added to the sum so far, which begins with 0.
template <class T>
SG_INLINE void sum_of_lines(const LineSum& sum, const T* from, int64_t n, double* to) {
  const auto line = [&](int64_t tap) { return from + sum.index[tap] * n; };
  const auto value = [](T x) { return static_cast<double>(static_cast<Compute<T>>(x)); };
  if (sum.taps == 0) return std::fill_n(to, n, 0.0), void();
  const T* a = line(0);
  const double by = sum.weight[0];
  if (sum.taps == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = 0.0 + by * value(a[i]);
    return;
  }
  const T* b = line(1);
  const double by_b = sum.weight[1];
  for (int64_t i = 0; i < n; ++i) to[i] = 0.0 + by * value(a[i]) + by_b * value(b[i]);
  for (int64_t tap = 2; tap < sum.taps; ++tap) {
    const T* c = line(tap);
    const double by_c = sum.weight[tap];
    for (int64_t i = 0; i < n; ++i) to[i] += by_c * value(c[i]);
  }
}

template <class T>
SG_CLONES void sum_lines(const LineSum& sum, const T* from, int64_t n, double* to) {
  sum_of_lines(sum, from, n, to);
}

template <class T>
SG_CLONES void widen_line(const T* from, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<double>(static_cast<Compute<T>>(from[i]));
}

// All positions of an axis, with `inner` elements each.
SG_CLONES void sum_positions(const Taps& taps, const double* from, int64_t inner, double* to) {
  const int64_t *begin = taps.begin.data(), positions = taps.out();
  for (int64_t i = 0; i < positions; ++i)
    sum_of_lines(LineSum{begin[i + 1] - begin[i], taps.index.data() + begin[i], taps.weight.data() + begin[i]}, from,
                 inner, to + i * inner);
}

// The same for single elements, whose few taps are not worth vectors.
void sum_elements(const Taps& taps, const double* from, double* to) {
  const int64_t *begin = taps.begin.data(), *index = taps.index.data();
  const double* weight = taps.weight.data();
  for (int64_t i = 0; i < taps.out(); ++i) {
    double sum = 0;
    for (int64_t t = begin[i]; t < begin[i + 1]; ++t) sum += weight[t] * from[index[t]];
    to[i] = sum;
  }
}

template <class T>
void resample_lines_of(KernelCall& call, const LineTaps& taps, const Tensor& from, const Tensor& to) {
  const int64_t length = taps.last.in * taps.inner, lines = taps.before ? taps.before->out() : 1;
  const int64_t lines_in = taps.before ? taps.before->in : 1;
  const RowWriter<double> out(call, to, taps.last.out() * taps.inner);
  auto* between = call.scratch().take<double>(length * call.team().size());
  const auto work = length + static_cast<int64_t>(taps.last.index.size()) * taps.inner;
  for_rows(call, taps.outer * lines, work, [&](int64_t row, int thread) {
    const T* plane = from.as<T>() + row / lines * lines_in * length;
    double* line = between + thread * length;
    if (taps.before) sum_lines(sum_at(*taps.before, row % lines), plane, length, line);
    else widen_line(plane, length, line);
    if (taps.inner > 1) sum_positions(taps.last, line, taps.inner, out.row(row, thread));
    else sum_elements(taps.last, line, out.row(row, thread));
    out.done(row, thread);
  });
}

}  // namespace

void resample_lines(KernelCall& call, const LineTaps& taps, const Tensor& from, const Tensor& to) {
  visit_floating(from.dtype, [&]<class T>() { resample_lines_of<T>(call, taps, from, to); });
}

void resample_one_axis(KernelCall& call, const LineTaps& taps, const Tensor& from, const Tensor& to) {
  const int64_t positions = taps.last.out(), inner = taps.inner;
  const int64_t work = static_cast<int64_t>(taps.last.index.size()) * inner / std::max<int64_t>(positions, 1);
  for_rows(call, taps.outer * positions, work, [&](int64_t row, int) {
    const double* line = from.as<double>() + row / positions * taps.last.in * inner;
    sum_lines(sum_at(taps.last, row % positions), line, inner, to.as<double>() + row * inner);
  });
}

}  // namespace sg::cpu
