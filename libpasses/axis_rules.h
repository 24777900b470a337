// The axis rules: how an op acts on values that are chunked, one function for each family of ops.
//
// A row is a proof obligation: what it gives must hold for any number of chunks and any cuts (axis_call.h). An op without a row is
// refused where an operand is chunked. tests/unit/axis_rules_test.cc runs each row against the whole op.
#pragma once

#include <span>

#include "libpasses/axis_call.h"

namespace sg {

using AxisRule = Status (*)(AxisCall&);

struct AxisRow {
  std::string_view op;                // full name, or a family as "aten.view."
  AxisRule rule;
  std::string_view name;              // in refusals
  bool takes_sizes = false;           // arguments may be sizes of each chunk's own
};

// The rule for a node some of whose operands are chunked; null = there is none. Pointwise ops need no row.
const AxisRow* find_axis_rule(const OpInfo& op);
std::span<const AxisRow> all_axis_rules();

// Whether the op fills a new tensor with one value, whatever its arguments: `constant` until it is wanted in chunks.
bool is_constant_fill(const OpInfo& op);
bool is_iota(const OpInfo& op);       // 0, 1, 2, ...

namespace axis {

// pointwise
Status pointwise(AxisCall&);
Status like(AxisCall&);               // zeros_like: of its argument's shape
// views
Status view(AxisCall&);
Status expand(AxisCall&);
Status transpose(AxisCall&);
Status permute(AxisCall&);
Status squeeze(AxisCall&);
Status unsqueeze(AxisCall&);
Status keep_inner(AxisCall&);         // views of the last axes' elements: complex and back
Status slice(AxisCall&);
Status slice_backward(AxisCall&);
Status select(AxisCall&);
Status split(AxisCall&);
Status unbind(AxisCall&);
Status cat(AxisCall&);
Status stack(AxisCall&);
// products, reductions
Status mm(AxisCall&);
Status bmm(AxisCall&);
Status addmm(AxisCall&);
Status linear(AxisCall&);
Status sum(AxisCall&);
Status reduce(AxisCall&);             // any reduction along other axes
Status along_dim(AxisCall&);          // softmax, cumsum, top-k: work along one axis, which must be another
Status layer_norm(AxisCall&);
Status layer_norm_backward(AxisCall&);
Status attention(AxisCall&);
Status embedding(AxisCall&);
Status embedding_backward(AxisCall&);
// by index
Status index(AxisCall&);
Status index_select(AxisCall&);
Status index_put(AxisCall&);
Status gather(AxisCall&);
Status scatter(AxisCall&);
// what the data decides
Status sort(AxisCall&);
Status histogram(AxisCall&);
Status repeat_interleave(AxisCall&);
Status grouped_mm(AxisCall&);
Status exchange(AxisCall&);
Status same(AxisCall&);               // waits and aliases: what its operand is
Status reduce_ranks(AxisCall&);
Status read_number(AxisCall&);
Status size(AxisCall&);
Status sized_factory(AxisCall&);
Status arange(AxisCall&);
Status assertion(AxisCall&);

// Operands that are sums over chunks, and nothing along an axis: the op's linear_in decides.
Status partial(AxisCall&);

// The value that `v` shows in another shape, width or order: keys are compared by it.
ValueId base_of(const AxisCall& call, ValueId v);

}  // namespace axis
}  // namespace sg
