// Largest and smallest values, and their positions.
#include "librun/cpu/kernels.h"
#include "librun/cpu/reduce.h"
#include "librun/cpu/reduce_ops.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

Error nothing_to_compare(KernelCall& call) { return call.fail("there is no largest or smallest of no elements"); }

template <bool largest>
Status extreme(KernelCall& call) {
  const Tensor& out = call.result();
  auto plan_for = [&](const Tensor& self) {
    return plan_reduction(self, out,
                          call.op().param_index("dim") >= 0 ? call.axes("dim", self.rank) : std::vector<int>());
  };
  ReducePlan plan = plan_for(call.tensor("self"));
  if (plan.count == 0 && plan.outputs > 0) return nothing_to_compare(call);
  visit_reducible(call, call.tensor("self"), [&]<class T>(const Tensor& self) {
    if constexpr (!is_complex_type<T>) {
      using Acc = std::conditional_t<std::is_integral_v<T>, int64_t, Compute<T>>;
      using Stored = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
      plan = plan_for(self);  // conversion may have changed the strides
      auto put = put_as<Stored>(out.dtype);
      reduce<T>(call, plan, self, Extreme<Acc, largest>{}, nullptr,
                [&](Acc acc, int64_t, int64_t offset) { put(out.data, offset, static_cast<Stored>(acc)); });
    }
  });
  return ok_status();
}

// The first of the largest, or of the smallest; the first NaN wins.
template <bool largest, class T>
int64_t position_in(const T* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; ++i) {
    auto value = static_cast<Compute<T>>(x[i]), top = static_cast<Compute<T>>(x[best]);
    if (top != top) break;
    if (value != value || (largest ? value > top : value < top)) best = i;
  }
  return best;
}

// Rows to compare: along `dim`, or all elements as one.
Rows compared_rows(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  if (call.has("dim")) return rows_of(call, self, call.integer("dim"));
  Tensor all = contiguous(call, self);
  return rows_of_length(all, all.elements());
}

// The part of a result with the axes of `self` except `axis`.
Tensor kept_axes(const Tensor& result, const Tensor& self, int64_t axis) {
  return result.rank == self.rank && self.rank > 0 ? drop_axis(result, wrap_axis(axis, self.rank)) : result;
}

// Stores positions in `indices`, and the values in `values` unless it is null.
template <bool largest>
Status positions(KernelCall& call, const Tensor* values, const Tensor& indices) {
  if (indices.elements() == 0) return ok_status();
  Rows rows = compared_rows(call);
  if (rows.length == 0) return nothing_to_compare(call);
  Tensor where = call.has("dim") ? kept_axes(indices, call.tensor("self"), call.integer("dim")) : indices;
  Tensor found = call.scratch().tensor(DType::i64, where.sizes());
  Tensor best = call.scratch().tensor(rows.tensor.dtype, where.sizes());
  visit_dtype(rows.tensor.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      for_rows(call, rows.count, rows.length, [&](int64_t row, int) {
        const T* x = rows.tensor.as<T>() + row * rows.length;
        int64_t at = position_in<largest>(x, rows.length);
        found.as<int64_t>()[row] = at;
        best.as<T>()[row] = x[at];
      });
    }
  });
  copy(call, where, found);
  if (values) copy(call, kept_axes(*values, call.tensor("self"), call.integer("dim")), best);
  return ok_status();
}

template <bool largest>
Status extreme_along(KernelCall& call) {
  return positions<largest>(call, &call.result(0), call.result(1));
}

template <bool largest>
Status position(KernelCall& call) {
  return positions<largest>(call, nullptr, call.result());
}

constexpr KernelRow kRows[] = {
    {"aten.amax.default", extreme<true>},    {"aten.amin.default", extreme<false>},
    {"aten.max.default", extreme<true>},     {"aten.min.default", extreme<false>},
    {"aten.max.dim", extreme_along<true>},   {"aten.min.dim", extreme_along<false>},
    {"aten.argmax.default", position<true>}, {"aten.argmin.default", position<false>},
};

}  // namespace

std::span<const KernelRow> reduce_extreme_kernels() { return kRows; }

}  // namespace sg::cpu
