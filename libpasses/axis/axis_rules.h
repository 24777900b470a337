// The axis rules: how an op acts on chunked values, one function per family of ops.
//
// Each row is a proof obligation: the states it returns must hold for any number of chunks and any cuts (axis_call.h).
// An op without a row is refused if an operand is chunked. tests/unit/axis_rules_test.cc runs each row against the
// whole op.
#pragma once

#include <span>

#include "libpasses/axis/axis_call.h"

namespace sg {

using AxisRule = Status (*)(AxisCall&);

// What a row accepts besides whole values and blocks.
enum AxisTakes : uint8_t {
  kTakesBlocks = 0,
  kTakesSizes = 1,  // arguments: sizes that differ per chunk
  kTakesRuns = 2,   // operands along an axis in runs: the op treats entries independently, or adds up all of them
};

struct AxisRow {
  std::string_view op;  // full name
  AxisRule rule;
  std::string_view name;         // in refusals
  uint8_t takes = kTakesBlocks;  // AxisTakes
};

// The rule for a node with a chunked operand; null = none. Pointwise and size ops need no row of their own.
const AxisRow* find_axis_rule(const OpInfo& op);
std::span<const AxisRow> all_axis_rules();
// Applies the row's rule, after checking that the row accepts operands in runs if there are any.
Status run_axis_rule(const AxisRow& row, AxisCall& call);

// Whether the op fills a new tensor with one value: such results are `constant` until they are wanted in chunks.
bool is_constant_fill(const OpInfo& op);
bool is_iota(const OpInfo& op);  // 0, 1, 2, ...

namespace axis {

// pointwise
Status pointwise(AxisCall&);
Result<Along> meet(AxisCall&);  // the common axis along which broadcast operands are chunked
Status like(AxisCall&);         // zeros_like: has the shape of its argument
// views
Status view(AxisCall&);
Status expand(AxisCall&);
Status transpose(AxisCall&);
Status permute(AxisCall&);
Status squeeze(AxisCall&);
Status unsqueeze(AxisCall&);
Status keep_inner(AxisCall&);  // views that keep the chunked axis and reinterpret elements: complex and back
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
Status baddbmm(AxisCall&);
Status linear(AxisCall&);
Status distances(AxisCall&);
Status distances_backward(AxisCall&);
Status sum(AxisCall&);
Status reduce(AxisCall&);     // any reduction along other axes
Status along_dim(AxisCall&);  // softmax, cumsum, top-k: work along one axis, which must not be the chunked one
Status layer_norm(AxisCall&);
Status layer_norm_backward(AxisCall&);
Status attention(AxisCall&);
Status flex_attention(AxisCall&);
Status batch(AxisCall&);  // entries of the first axis are independent: convolutions, pools, norms by channel
Status pad(AxisCall&);
Status flip(AxisCall&);
Status repeat(AxisCall&);
Status triangle(AxisCall&);
Status other_dims(AxisCall&);        // work along several axes, which must not be the chunked one
Status matrices(AxisCall&);          // work on the last two axes
Status shuffle_channels(AxisCall&);  // between channels and planes
Status one_hot(AxisCall&);
Status repeat_each(AxisCall&);
Status slice_scatter(AxisCall&);  // and select_scatter
Status log_sigmoid(AxisCall&);
// losses
Status elementwise_loss(AxisCall&);
Status elementwise_loss_backward(AxisCall&);
Status nll_loss(AxisCall&);
Status nll_loss_backward(AxisCall&);
Status folded_loss(AxisCall&);
Status folded_loss_backward(AxisCall&);
Status cross_entropy(AxisCall&);
Status share_rows(AxisCall&, const Along&);  // results are means: weighted by the chunk's share of the rows
Status embedding(AxisCall&);
Status embedding_backward(AxisCall&);
// by index
Status index(AxisCall&);
Status index_select(AxisCall&);
Status index_put(AxisCall&);
Status index_copy(AxisCall&);  // and index_add
Status gather(AxisCall&);
Status scatter(AxisCall&);
Status scatter_reduce(AxisCall&);
// decided by the data
Status sort(AxisCall&);
Status histogram(AxisCall&);
Status bincount(AxisCall&);
Status repeat_interleave(AxisCall&);
Status grouped_mm(AxisCall&);
Status scaled_mm(AxisCall&);
Status exchange(AxisCall&);
Status same(AxisCall&);  // waits and aliases: the state of the operand
Status reduce_ranks(AxisCall&);
Status gather_ranks(AxisCall&);  // the ranks' values, concatenated
Status read_number(AxisCall&);
Status size(AxisCall&);
Status sized_factory(AxisCall&);
Status arange(AxisCall&);
Status assertion(AxisCall&);

// Operands are sums over chunks, and none is along an axis: the op's linear_in decides.
Status partial(AxisCall&);

// --- counts of keys, and values computed from them: count_table.h ---
AxisState counts_state(AxisCall& c, CountTable table);
const CountTable* table_of(const AxisCall& c, const AxisState& s);
// The states of an op's results if its operands are sums over chunks, with their count tables where they have one.
std::vector<AxisState> counts_after(AxisCall& c);
// The layout of a domain's items in the cells of `like`; none if unknown.
std::optional<CountTable> layout_of(const AxisCall& c, uint32_t domain, const CountTable& like);
// add and sub of numbers along items: combines "the first item of the part" and "the item's place" into positions in
// another order.
void combine_forms(AxisCall& c, AxisState* out);
// n, if the keys are certainly in [0, n); none = unknown. And whether no row contains a key twice.
std::optional<int64_t> keys_below(const AxisCall& c, ValueId keys);
bool keys_differ_in_row(const AxisCall& c, ValueId keys);

// Whether a cast preserves integers such as keys and counts.
bool keeps_whole_numbers(const Graph& graph, NodeId cast);

// The value that `v` shows in another shape, width or order: the identity by which keys are compared.
ValueId base_of(const AxisCall& call, ValueId v);

}  // namespace axis
}  // namespace sg
