// Running sums, products and extremes along one axis. Floats are accumulated in double, in order.
#include <cmath>
#include <limits>

#include "librun/cpu/kernels.h"
#include "librun/cpu/reduce_ops.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

// Long rows are cut into parts of this many elements: sums of parts first, then each part from where it starts.
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

template <template <class> class Op, class T>
void scan_rows(KernelCall& call, const Rows& rows, T* to) {
  Op<SumType<T>> op;
  const T* from = rows.tensor.as<T>();
  int64_t parts = std::max<int64_t>(1, (rows.length + kPart - 1) / kPart);
  auto* starts = call.scratch().template take<SumType<T>>(rows.count * parts);
  auto part_of = [&](int64_t unit, const auto& fn) {
    int64_t first = unit % parts * kPart;
    fn(unit / parts * rows.length + first, std::min(kPart, rows.length - first));
  };
  if (parts > 1) {
    for_rows(call, rows.count * parts, kPart, [&](int64_t unit, int) {
      part_of(unit, [&](int64_t at, int64_t n) {
        auto acc = op.start();
        for (int64_t i = 0; i < n; ++i) acc = op.merge(acc, wide<T>(from[at + i]));
        starts[unit] = acc;
      });
    });
  }
  for (int64_t row = 0; row < rows.count; ++row) {
    auto acc = op.start();
    for (int64_t p = 0; p < parts; ++p) {
      auto sum = starts[row * parts + p];
      starts[row * parts + p] = acc;
      if (parts > 1) acc = op.merge(acc, sum);
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
  Rows rows = rows_of(call, self, axis, call.result().dtype);
  ResultRows out(call, call.result(), axis);
  visit_dtype(call.result().dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) scan_rows<Op, T>(call, rows, out.tensor().as<T>());
  });
  out.store(call);
  return ok_status();
}

// log(exp(a) + exp(b)); a pair of equal infinities is that infinity.
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

// The last of equal extremes is the one that is named; a NaN stays.
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
