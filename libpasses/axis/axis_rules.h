// The axis rules: how an op acts on values that are chunked, one function for each family of ops.
//
// A row is a proof obligation: what it gives must hold for any number of chunks and any cuts (axis_call.h). An op
// without a row is refused where an operand is chunked. tests/unit/axis_rules_test.cc runs each row against the whole
// op.
#pragma once

#include <span>

#include "libpasses/axis/axis_call.h"

namespace sg {

using AxisRule = Status (*)(AxisCall&);

// What operands of a row may be, besides whole values and blocks.
enum AxisTakes : uint8_t {
  kTakesBlocks = 0,
  kTakesSizes = 1,  // arguments: sizes of each chunk's own
  kTakesRuns = 2,   // operands along an axis in runs: each entry alone, or all of them added up
};

struct AxisRow {
  std::string_view op;  // full name, or a family as "aten.view."
  AxisRule rule;
  std::string_view name;         // in refusals
  uint8_t takes = kTakesBlocks;  // AxisTakes
};

// The rule for a node some of whose operands are chunked; null = there is none. Pointwise ops need no row.
const AxisRow* find_axis_rule(const OpInfo& op);
std::span<const AxisRow> all_axis_rules();
// The row's rule, where the row takes what the operands are.
Status run_axis_rule(const AxisRow& row, AxisCall& call);

// Whether the op fills a new tensor with one value, whatever its arguments: `constant` until it is wanted in chunks.
bool is_constant_fill(const OpInfo& op);
bool is_iota(const OpInfo& op);  // 0, 1, 2, ...

namespace axis {

// pointwise
Status pointwise(AxisCall&);
Result<Along> meet(AxisCall&);  // what operands that are broadcast together are chunked along
Status like(AxisCall&);         // zeros_like: of its argument's shape
// views
Status view(AxisCall&);
Status expand(AxisCall&);
Status transpose(AxisCall&);
Status permute(AxisCall&);
Status squeeze(AxisCall&);
Status unsqueeze(AxisCall&);
Status keep_inner(AxisCall&);  // views of the last axes' elements: complex and back
Status slice(AxisCall&);
Status slice_backward(AxisCall&);
Status unfold(AxisCall&);
Status unfold_backward(AxisCall&);
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
Status reduce(AxisCall&);     // any reduction along other axes
Status along_dim(AxisCall&);  // softmax, cumsum, top-k: work along one axis, which must be another
Status layer_norm(AxisCall&);
Status layer_norm_backward(AxisCall&);
Status attention(AxisCall&);
Status flex_attention(AxisCall&);
Status batch(AxisCall&);  // each entry of the first axis alone: convolutions, pools, norms by channel
Status pad(AxisCall&);
Status flip(AxisCall&);
Status repeat(AxisCall&);
Status triangle(AxisCall&);
Status log_sigmoid(AxisCall&);
// losses
Status elementwise_loss(AxisCall&);
Status elementwise_loss_backward(AxisCall&);
Status nll_loss(AxisCall&);
Status nll_loss_backward(AxisCall&);
Status folded_loss(AxisCall&);
Status folded_loss_backward(AxisCall&);
Status cross_entropy(AxisCall&);
Status share_rows(AxisCall&, const Along&);  // results are means: weighed by the chunk's share of the rows
Status embedding(AxisCall&);
Status embedding_backward(AxisCall&);
// by index
Status index(AxisCall&);
Status index_select(AxisCall&);
Status index_put(AxisCall&);
Status index_copy(AxisCall&);  // and index_add
Status gather(AxisCall&);
Status scatter(AxisCall&);
// what the data decides
Status sort(AxisCall&);
Status histogram(AxisCall&);
Status repeat_interleave(AxisCall&);
Status grouped_mm(AxisCall&);
Status scaled_mm(AxisCall&);
Status exchange(AxisCall&);
Status same(AxisCall&);  // waits and aliases: what its operand is
Status reduce_ranks(AxisCall&);
Status gather_ranks(AxisCall&);  // what each rank has, one behind the other
Status read_number(AxisCall&);
Status size(AxisCall&);
Status sized_factory(AxisCall&);
Status arange(AxisCall&);
Status assertion(AxisCall&);

// Operands that are sums over chunks, and nothing along an axis: the op's linear_in decides.
Status partial(AxisCall&);

// --- counts of keys, and what is computed from them: count_table.h ---
AxisState counts_state(AxisCall& c, CountTable table);
const CountTable* table_of(const AxisCall& c, const AxisState& s);
// The table of each result of an op whose operands are sums over chunks; the states that `partial` gives.
std::vector<AxisState> counts_after(AxisCall& c);
// The layout of a domain's items, told by the cells of `like`; none when it is not known.
std::optional<CountTable> layout_of(const AxisCall& c, uint32_t domain, const CountTable& like);
// add and sub of numbers along items: the first item of the part, and where the item lies in it. Positions in another
// order when complete.
void combine_forms(AxisCall& c, AxisState* out);
// Keys are 0 .. n-1 for certain (none = not known); no row has one twice.
std::optional<int64_t> keys_below(const AxisCall& c, ValueId keys);
bool keys_differ_in_row(const AxisCall& c, ValueId keys);

// A cast that leaves numbers of keys and counts what they are.
bool keeps_whole_numbers(const Graph& graph, NodeId cast);

// The value that `v` shows in another shape, width or order: keys are compared by it.
ValueId base_of(const AxisCall& call, ValueId v);

}  // namespace axis
}  // namespace sg
