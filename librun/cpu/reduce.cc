#include "librun/cpu/reduce.h"

#include <numeric>

namespace sg::cpu {
namespace {

using Axis = ReducePlan::Axis;

// Joins neighbours that lie one after the other, and leaves out axes of one element; at least one axis stays.
std::vector<Axis> joined(const std::vector<Axis>& axes) {
  std::vector<Axis> out;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    if (!out.empty() && out.back().in == axis.in * axis.size && out.back().out == axis.out * axis.size)
      out.back() = {out.back().size * axis.size, axis.in, axis.out};
    else
      out.push_back(axis);
  }
  if (out.empty()) out.push_back({1, 0, 0});
  return out;
}

int64_t elements(const std::vector<Axis>& axes) {
  return std::accumulate(axes.begin(), axes.end(), int64_t{1}, [](int64_t n, const Axis& a) { return n * a.size; });
}

}  // namespace

ReducePlan plan_reduction(const Tensor& self, const Tensor& out, const std::vector<int>& axes) {
  std::vector<bool> reduced(static_cast<size_t>(self.rank), axes.empty());
  for (int axis : axes)
    if (self.rank > 0) reduced[static_cast<size_t>(axis)] = true;
  // By stride, outermost first; equal strides (expanded axes) stay in logical order.
  std::vector<int> order(static_cast<size_t>(self.rank)), out_axis(order);
  std::iota(order.begin(), order.end(), 0);
  int next = 0;
  for (int i = 0; i < self.rank; ++i) out_axis[static_cast<size_t>(i)] = out.rank == self.rank ? i : reduced[static_cast<size_t>(i)] ? -1 : next++;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return self.step(a) > self.step(b); });
  ReducePlan plan;
  bool innermost_reduced = false;
  for (int axis : order) {
    auto a = static_cast<size_t>(axis);
    if (self.dim(axis) != 1 && self.step(axis) != 0) innermost_reduced = reduced[a];
    if (reduced[a]) plan.reduced.push_back({self.dim(axis), self.step(axis), 0});
    else plan.kept.push_back({self.dim(axis), self.step(axis), out.step(out_axis[a])});
  }
  plan.kept = joined(plan.kept);
  plan.reduced = joined(plan.reduced);
  plan.outputs = elements(plan.kept);
  plan.count = elements(plan.reduced);
  plan.rows = innermost_reduced || plan.outputs == 1;
  plan.per_block = plan.rows ? kReduceRun : kReduceColumnRows;
  plan.blocks = std::max<int64_t>(1, (plan.count + plan.per_block - 1) / plan.per_block);
  return plan;
}

OuterOffset outer_offset(const std::vector<Axis>& axes, int64_t position) {
  OuterOffset offset;
  for (size_t i = axes.size() - 1; i-- > 0;) {
    int64_t index = position % axes[i].size;
    offset.in += index * axes[i].in;
    offset.out += index * axes[i].out;
    position /= axes[i].size;
  }
  return offset;
}

template <class Acc>
Put<Acc> put_as(DType dtype) {
  return visit_dtype(dtype, []<class T>() -> Put<Acc> {
    return [](std::byte* data, int64_t offset, Acc value) {
      T& to = reinterpret_cast<T*>(data)[offset];
      if constexpr (is_complex_type<T>) {
        using Real = typename T::value_type;
        std::complex<double> both;
        if constexpr (std::is_same_v<Acc, uint64_t>) both = static_cast<double>(static_cast<int64_t>(value));
        else if constexpr (std::is_same_v<Acc, int64_t>) both = static_cast<double>(value);
        else both = value;
        to = T(static_cast<Real>(both.real()), static_cast<Real>(both.imag()));
      } else if constexpr (is_complex_type<Acc>) {
        to = static_cast<T>(static_cast<Compute<T>>(value.real()));
      } else if constexpr (std::is_same_v<Acc, uint64_t>) {
        to = static_cast<T>(static_cast<Compute<T>>(static_cast<int64_t>(value)));
      } else {
        to = static_cast<T>(static_cast<Compute<T>>(value));
      }
    };
  });
}

template Put<double> put_as(DType);
template Put<C128> put_as(DType);
template Put<int64_t> put_as(DType);
template Put<uint64_t> put_as(DType);

}  // namespace sg::cpu
