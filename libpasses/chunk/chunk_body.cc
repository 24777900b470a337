// One node of a region: the states that its axis rule derives from its operands, and how sums over chunks are handled.
#include <algorithm>

#include "libgraph/dtype.h"
#include "libgraph/operands.h"
#include "libpasses/chunk/chunk_planner.h"
#include "libpasses/chunk/chunk_regions.h"

namespace sg {
namespace {

bool is_cast(const OpInfo& op) { return op.name == "aten._to_copy.default" || op.name == "aten.to.dtype"; }

bool is_cast_up(const Graph& graph, NodeId n) {
  if (!is_cast(*graph.op_info(n))) return false;
  const DType from = graph.type(graph.node(n).args[0].as_value()).dtype, to = graph.type(graph.node(n).result(0)).dtype;
  return is_floating(from) && is_floating(to) && dtype_bytes(to) > dtype_bytes(from);
}

// Whether the node is a cast to a wider type, or leads through views and casts, each the only user, to one.
bool is_widened_first(const Graph& graph, NodeId n) {
  for (NodeId at = n;;) {
    const OpInfo* op = graph.op_info(at);
    if (op == nullptr) return false;
    if (is_cast_up(graph, at)) return true;
    if ((!op->has(kView) && !is_cast(*op)) || op->has(kWait) || graph.node(at).result_count != 1) return false;
    at = graph.only_user(graph.node(at).result(0));
    if (!at) return false;
  }
}

bool same_chunks(const AxisState& a, const AxisState& b) {
  return a.kind == b.kind && a.along == b.along && a.source == b.source;
}

}  // namespace

ChunkPlanner::Operands ChunkPlanner::operands_of(NodeId n) const {
  Operands out;
  for_operands(graph_, n, [&](ValueId v) {
    const AxisKind kind = state(v).kind == AxisKind::whole ? plan_.world.seeds[v.index].kind : state(v).kind;
    if (state(v).common) return;
    out.along = out.along || kind == AxisKind::along;
    out.partial = out.partial || kind == AxisKind::partial;
    out.size = out.size || kind == AxisKind::size;
  });
  return out;
}

std::optional<RefusedRegion> ChunkPlanner::visit_body(NodeId n, uint32_t r) {
  const OpInfo* op = graph_.op_info(n);
  if (op == nullptr)
    return RefusedRegion{r,
                         why_not_.at_node(n, "no rule", "nothing is known about this op, and an operand is chunked")};
  const Operands has = operands_of(n);
  for_operands(graph_, n, [&](ValueId v) {
    if (state(v).kind == AxisKind::along && plan_.made_in[v.index] != r) note_result(v);
  });
  if (is_constant_fill(*op) && !has.size) {
    if (auto rows = filled_through_views(n)) {
      make_in_chunks(graph_.node(n).result(0), along_state(*rows), r);
      return std::nullopt;
    }
    mark_constant(n);
    fills_.push_back(n);
    return std::nullopt;
  }
  if (has.partial && !has.along && sums_before(n)) return use_operands(n);
  if (draws_random(graph_, n) && !op->has(kPointwise))
    return RefusedRegion{r, why_not_.at_node(n, "random numbers", "its numbers cannot be those of the whole")};
  const AxisRow* row = find_axis_rule(*op);
  AxisCall call(&plan_.world, program_, n);
  Status done = repeats_earlier(&call, row, r) ? ok_status() : run_rule(call, row, has);
  if (!done.ok() && has.partial)
    return visit_with_sums(n, r, row, has,
                           why_not_.at_node(n, row == nullptr ? "no rule" : row->name, done.error().message));
  if (!done.ok()) return refused(call, row, r, done.error());
  if (draws_random(graph_, n) && (call.given[0].kind != AxisKind::along || !call.world.is_block(call.given[0].along)))
    return RefusedRegion{r, why_not_.at_node(n, "random numbers", "its numbers cannot be those of the whole")};
  accept(call, r);
  return std::nullopt;
}

// The rows of what is filled through views of it, as circular padding is: new, empty, and as long as a chunked operand.
std::optional<Along> ChunkPlanner::filled_through_views(NodeId n) {
  if (graph_.op_name(n) != "aten.new_empty.default") return std::nullopt;
  AxisCall call(&plan_.world, program_, n);
  const AxisState* s = call.along(call.tensor("self"));
  const ValueId made = call.result(0);
  const auto is_view = [&](NodeId user) {
    const OpInfo* op = graph_.op_info(user);
    return op != nullptr && op->has(kView);
  };
  if (s == nullptr || s->local || s->along.axis >= call.rank(made) || !call.is_as_long(made, s->along) ||
      std::ranges::none_of(graph_.users(made), is_view))
    return std::nullopt;
  return s->along;
}

// If no rule takes the sums over chunks, they are added up before the node, which then sees whole values.
std::optional<RefusedRegion> ChunkPlanner::visit_with_sums(NodeId n, uint32_t r, const AxisRow* row, Operands has,
                                                           Error refusal) {
  if (!has.along) return use_operands(n) ? std::optional(RefusedRegion{r, std::move(refusal)}) : std::nullopt;
  if (draws_random(graph_, n)) return RefusedRegion{r, std::move(refusal)};
  std::vector<ValueId> sums;
  for_operands(graph_, n, [&](ValueId v) {
    if (state(v).kind == AxisKind::partial && std::ranges::find(sums, v) == sums.end()) sums.push_back(v);
  });
  for (ValueId v : sums) plan_.world.settled[v.index] = true;
  has.partial = false;
  AxisCall call(&plan_.world, program_, n);
  if (!run_rule(call, row, has).ok()) {
    for (ValueId v : sums) plan_.world.settled[v.index] = false;
    return RefusedRegion{r, std::move(refusal)};
  }
  for (ValueId v : sums) plan_.full_use[v.index] = true;
  accept(call, r);
  return std::nullopt;
}

// A recomputed sort gives the same items as the first one, so its results get the earlier states.
bool ChunkPlanner::repeats_earlier(AxisCall* call, const AxisRow* row, uint32_t r) const {
  if (row == nullptr || (row->rule != axis::sort && row->rule != axis::repeat_interleave)) return false;
  const ValueId first = plan_.world.equal[call->result(0).index];
  const NodeId earlier = graph_.value(first).def;
  if (first == call->result(0) || !plan_.is_body[earlier.index] || plan_.made_in[first.index] != r ||
      state(first).kind != AxisKind::along)
    return false;
  if (plan_.world.domains[state(first).along.domain].is_rows) return false;
  if (!same_chunks(call->state(call->tensors()[0]), state(AxisCall(&call->world, program_, earlier).tensors()[0])))
    return false;
  for (uint32_t i = 0; i < call->node.result_count; ++i) call->given.push_back(state(graph_.node(earlier).result(i)));
  return true;
}

Status ChunkPlanner::run_rule(AxisCall& call, const AxisRow* row, const Operands& has) const {
  if (has.size && (row == nullptr || (row->takes & kTakesSizes) == 0))
    return call.fail("it takes a number that differs from chunk to chunk");
  const bool moves =
      row != nullptr && (row->rule == axis::same || row->rule == axis::exchange || row->rule == axis::reduce_ranks ||
                         row->rule == axis::read_number || row->rule == axis::repeat_interleave);
  if (has.partial && !has.along && !moves && !(row != nullptr && row->rule == axis::pointwise && call.op.writes()))
    return tampered(call, axis::partial(call));
  if (row == nullptr) return call.fail("no axis rule says what it does to chunks");
  return tampered(call, run_axis_rule(*row, call));
}

// A refusal that other cuts would spare, unless these leave too few rows for the region.
RefusedRegion ChunkPlanner::refused(const AxisCall& call, const AxisRow* row, uint32_t r, const Error& why) const {
  RefusedRegion out{r, {}};
  std::string message = why.message;
  if (call.wanted_together) {
    std::vector<RowsTogether> together = together_;
    together.push_back(*call.wanted_together);
    const ChunkRegion& region = plan_.regions[r];
    const Expr rows = graph_.type(region.activation).shape[region.along.axis];
    const RowCut cut = cut_at_entries(&graph_.pool().exprs, region.along.axis, rows, together);
    const std::string few = too_few_rows(program_, options_, region.activation, cut);
    if (few.empty()) out.unless = call.wanted_together;
    else message += ", and " + few;
  }
  out.error = why_not_.at_node(call.id, row == nullptr ? "no rule" : row->name, message);
  return out;
}

Status ChunkPlanner::tampered(AxisCall& call, Status done) const {
  if (done.ok() && options_.tamper) options_.tamper(call);
  return done;
}

// Early sums: a gradient is summed as soon as it is a sum over chunks, unless a cast to a wider type comes first.
bool ChunkPlanner::sums_before(NodeId n) const {
  if (!options_.early_sums || graph_.node(n).phase != Phase::backward) return false;
  bool counts = false;
  for_operands(graph_, n, [&](ValueId v) { counts = counts || !state(v).source.is_none(); });
  return !counts && !is_widened_first(graph_, n);
}

void ChunkPlanner::accept(AxisCall& call, uint32_t r) {
  for (const auto& [v, s] : call.constants) make_in_chunks(v, s, r);
  BodyNode body;
  body.node = call.id, body.region = r;
  body.edits = std::move(call.edits), body.slices = std::move(call.slices), body.words = std::move(call.words);
  body.settles = std::move(call.settles), body.share = call.share, body.accumulates = call.accumulates;
  for_operands(graph_, call.id, [&](ValueId v) {
    if (plan_.world.settled[v.index]) body.whole_reads.push_back(v);
  });
  for (ValueId v : seeded_)
    if (std::ranges::none_of(body.slices, [&](const SliceWish& s) { return s.value == v; }))
      body.slices.push_back({v, plan_.world.seeds[v.index].along});
  for (uint32_t i = 0; i < call.node.result_count; ++i) {
    const ValueId result = call.node.result(i);
    if (graph_.type(result).kind == TypeKind::none) continue;  // an optional result that was not requested
    plan_.world.state(result) = call.given[i];
    plan_.made_in[result.index] = r;
  }
  add_body(std::move(body));
}

void ChunkPlanner::make_in_chunks(ValueId v, const AxisState& s, uint32_t r) {
  const NodeId def = graph_.value(v).def;
  plan_.world.state(v) = s;
  plan_.made_in[v.index] = r;
  BodyNode body;
  body.node = def, body.region = r;
  const OpInfo* op = graph_.op_info(def);
  if (s.local) body.edits.push_back({0, std::nullopt, s.along});
  else body.edits.push_back({static_cast<uint32_t>(op->param_index("size")), s.along.axis, s.along});
  add_body(std::move(body));
}

void ChunkPlanner::add_body(BodyNode body) {
  plan_.is_body[body.node.index] = true;
  plan_.body.push_back(std::move(body));
}

}  // namespace sg
