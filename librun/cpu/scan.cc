// Running sums, products and extremes along one axis. Floats are accumulated in double, in order.
#include <cmath>
#include <limits>

#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/reduce_ops.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

// Long rows are cut into parts of this many elements: first the sums of parts are computed, then each part from its
// start.
constexpr int64_t kPart = 1 << 14;

template <class T, class A>
T element_of(A value) {
  if constexpr (is_complex_type<T>)
    return T(static_cast<typename T::value_type>(value.real()), static_cast<typename T::value_type>(value.imag()));
  else if constexpr (std::is_same_v<A, uint64_t>)
    return static_cast<T>(static_cast<Compute<T>>(static_cast<int64_t>(value)));
  else return static_cast<T>(static_cast<Compute<T>>(value));
}

template <class T>
SumType<T> wide(T value) {
  return static_cast<SumType<T>>(static_cast<Compute<T>>(value));
}

constexpr int64_t kRowsAtOnce = 8;     // whose chains of sums run in parallel
constexpr int64_t kLinesAtOnce = 256;  // adjacent lines

// Scans kRows rows of n.
template <int64_t kRows, class Op, class T>
SG_INLINE void scan_together(const Op& op, const T* from, T* to, int64_t n) {
  typename Op::Acc acc[kRows];
  for (auto& a : acc) a = op.start();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 0; r < kRows; ++r) {
      acc[r] = op.merge(acc[r], wide<T>(from[r * n + i]));
      to[r * n + i] = element_of<T>(acc[r]);
    }
}

// Scans adjacent lines: elements of a line are `step` apart.
template <class Op, class T>
SG_CLONES void scan_lines(const Op& op, const T* from, T* to, int64_t lines, int64_t n, int64_t step) {
  typename Op::Acc acc[kLinesAtOnce];
  for (auto& a : acc) a = op.start();
  for (int64_t i = 0; i < n; ++i, from += step, to += step) {
#pragma GCC ivdep  // `to` may lie where `from` does
    for (int64_t l = 0; l < lines; ++l) {
      acc[l] = op.merge(acc[l], wide<T>(from[l]));
      to[l] = element_of<T>(acc[l]);
    }
  }
}

// Scans along an axis other than the innermost of two contiguous tensors, without moving elements.
template <template <class> class Op, class T>
void scan_across(KernelCall& call, const Tensor& self, int axis, T* to) {
  const int64_t length = self.dim(axis);
  int64_t inner = 1;
  for (int i = axis + 1; i < self.rank; ++i) inner *= self.dim(i);
  const int64_t across = (inner + kLinesAtOnce - 1) / kLinesAtOnce;
  for_rows(call, self.elements() / (length * inner) * across, length * std::min(inner, kLinesAtOnce),
           [&](int64_t unit, int) {
             const int64_t line = unit % across * kLinesAtOnce, first = unit / across * length * inner + line;
             scan_lines(Op<SumType<T>>(), self.as<T>() + first, to + first, std::min(kLinesAtOnce, inner - line),
                        length, inner);
           });
}

// Whether scan_across applies: short lines, several of them adjacent in memory.
bool lies_across(const Tensor& self, const Tensor& result, int axis) {
  constexpr int64_t kFewLines = 8;
  int64_t inner = 1;
  for (int i = axis + 1; i < self.rank; ++i) inner *= self.dim(i);
  return inner >= kFewLines && self.dim(axis) > 0 && self.dim(axis) <= kPart && self.dtype == result.dtype &&
         self.is_contiguous() && result.is_contiguous() && !self.conjugate && !result.conjugate;
}

template <template <class> class Op, class T>
void scan_rows(KernelCall& call, const Rows& rows, T* to) {
  Op<SumType<T>> op;
  const T* from = rows.tensor.as<T>();
  int64_t parts = std::max<int64_t>(1, (rows.length + kPart - 1) / kPart);
  if (parts == 1) {
    const int64_t n = rows.length, groups = (rows.count + kRowsAtOnce - 1) / kRowsAtOnce;
    return for_rows(call, groups, kRowsAtOnce * n, [&](int64_t group, int) {
      int64_t row = group * kRowsAtOnce;
      if (row + kRowsAtOnce <= rows.count) return scan_together<kRowsAtOnce>(op, from + row * n, to + row * n, n);
      for (; row < rows.count; ++row) scan_together<1>(op, from + row * n, to + row * n, n);
    });
  }
  auto* starts = call.scratch().template take<SumType<T>>(rows.count * parts);
  auto part_of = [&](int64_t unit, const auto& fn) {
    int64_t first = unit % parts * kPart;
    fn(unit / parts * rows.length + first, std::min(kPart, rows.length - first));
  };
  for_rows(call, rows.count * parts, kPart, [&](int64_t unit, int) {
    part_of(unit, [&](int64_t at, int64_t n) {
      auto acc = op.start();
      for (int64_t i = 0; i < n; ++i) acc = op.merge(acc, wide<T>(from[at + i]));
      starts[unit] = acc;
    });
  });
  for (int64_t row = 0; row < rows.count; ++row) {
    auto acc = op.start();
    for (int64_t p = 0; p < parts; ++p) {
      auto sum = starts[row * parts + p];
      starts[row * parts + p] = acc;
      acc = op.merge(acc, sum);
    }
  }
  for_rows(call, rows.count * parts, std::min(rows.length, kPart), [&](int64_t unit, int) {
    part_of(unit, [&](int64_t at, int64_t n) {
      auto acc = starts[unit];
      for (int64_t i = 0; i < n; ++i) {
        acc = op.merge(acc, wide<T>(from[at + i]));
        to[at + i] = element_of<T>(acc);
      }
    });
  });
}

template <template <class> class Op>
Status scan(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  int64_t axis = call.integer("dim");
  if (self.rank > 0 && lies_across(self, call.result(), wrap_axis(axis, self.rank))) {
    visit_dtype(self.dtype, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>)
        scan_across<Op, T>(call, self, wrap_axis(axis, self.rank), call.result().as<T>());
    });
    return ok_status();
  }
  Rows rows = rows_of(call, self, axis, call.result().dtype);
  ResultRows out(call, call.result(), axis);
  visit_dtype(call.result().dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) scan_rows<Op, T>(call, rows, out.tensor().as<T>());
  });
  out.store(call);
  return ok_status();
}

// log(exp(a) + exp(b)); two equal infinities give that infinity.
double log_add(double a, double b) {
  double low = std::min(a, b), high = std::max(a, b);
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return low == high && std::isinf(low) ? low : high + std::log1p(std::exp(low - high));
}

Status logcumsumexp(KernelCall& call) {
  int64_t axis = call.integer("dim");
  Rows rows = rows_of(call, call.tensor("self"), axis, call.result().dtype);
  ResultRows out(call, call.result(), axis);
  visit_floating(call.result().dtype, [&]<class T>() {
    for_rows(call, rows.count, rows.length, [&](int64_t row, int) {
      double acc = -std::numeric_limits<double>::infinity();
      for (int64_t i = row * rows.length; i < (row + 1) * rows.length; ++i) {
        acc = log_add(acc, static_cast<double>(static_cast<Compute<T>>(rows.tensor.as<T>()[i])));
        out.tensor().as<T>()[i] = static_cast<T>(static_cast<Compute<T>>(acc));
      }
    });
  });
  out.store(call);
  return ok_status();
}

// The index of the last of equal extremes; a NaN stays.
template <bool largest>
Status running_extreme(KernelCall& call) {
  int64_t axis = call.integer("dim");
  Rows rows = rows_of(call, call.tensor("self"), axis);
  ResultRows values(call, call.result(0), axis), indices(call, call.result(1), axis);
  visit_dtype(rows.tensor.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      for_rows(call, rows.count, rows.length, [&](int64_t row, int) {
        const T* x = rows.tensor.as<T>() + row * rows.length;
        int64_t best = 0;
        for (int64_t i = 0; i < rows.length; ++i) {
          auto value = static_cast<Compute<T>>(x[i]), top = static_cast<Compute<T>>(x[best]);
          if (value != value || (top == top && (largest ? value >= top : value <= top))) best = i;
          values.tensor().as<T>()[row * rows.length + i] = x[best];
          indices.tensor().as<int64_t>()[row * rows.length + i] = best;
        }
      });
    }
  });
  values.store(call);
  indices.store(call);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.cumsum.default", scan<Sum>},
    {"aten.cumsum_.default", scan<Sum>},
    {"aten.cumprod.default", scan<Product>},
    {"aten.logcumsumexp.default", logcumsumexp},
    {"aten.cummax.default", running_extreme<true>},
    {"aten.cummin.default", running_extreme<false>},
};

}  // namespace

std::span<const KernelRow> scan_kernels() { return kRows; }

}  // namespace sg::cpu
