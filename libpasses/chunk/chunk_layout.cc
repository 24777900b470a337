#include "libpasses/chunk/chunk_layout.h"

#include <algorithm>
#include <numeric>

#include "libgraph/infer/infer_sizes.h"

namespace sg {

std::optional<AxisOrder> axes_in_memory(Pool* pool, const Program& program, const Type& type) {
  Sizes sizes(pool, &program);
  AxisOrder order = same_order(type.shape.size());
  if (sizes.is_contiguous(type)) return order;
  std::ranges::stable_sort(order,
                           [&](uint32_t a, uint32_t b) { return sizes.compare(type.stride[a], type.stride[b]) > 0; });
  Type turned = type;
  for (size_t i = 0; i < order.size(); ++i)
    turned.shape[i] = type.shape[order[i]], turned.stride[i] = type.stride[order[i]];
  return sizes.is_contiguous(turned) ? std::optional(order) : std::nullopt;
}

std::vector<uint32_t> take_repeated_axes(Pool* pool, Type* type, uint32_t kept) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < type->shape.size(); ++i) {
    if (i == kept || pool->exprs.constant_value(type->stride[i]) != 0 ||
        pool->exprs.constant_value(type->shape[i]) == 1)
      continue;
    type->shape[i] = type->stride[i] = pool->exprs.constant(1);
    out.push_back(i);
  }
  return out;
}

AxisOrder same_order(size_t rank) {
  AxisOrder order(rank);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

bool is_identity(const AxisOrder& order) { return std::ranges::is_sorted(order); }

AxisOrder inverse(const AxisOrder& order) {
  AxisOrder out(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) out[order[i]] = i;
  return out;
}

uint32_t position_in(const AxisOrder& order, uint32_t axis) { return inverse(order)[axis]; }

Arg axes_arg(const AxisOrder& order) {
  ArgList list;
  for (uint32_t axis : order) list.push_back(Arg::integer(axis));
  return Arg::list(std::move(list));
}

}  // namespace sg
