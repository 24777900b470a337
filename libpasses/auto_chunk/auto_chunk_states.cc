#include "libpasses/auto_chunk/auto_chunk_planner.h"

#include "libpasses/value_numbers.h"

namespace sg {

void AutoPlanner::grow() {
  const size_t values = graph_.value_id_limit(), nodes = graph_.node_id_limit(), known = plan_.world.equal.size();
  plan_.world.states.resize(values), plan_.world.seeds.resize(values);
  depends_.resize(values), unknown_.resize(values);
  for (size_t v = known; v < values; ++v) plan_.world.equal.push_back(ValueId(static_cast<uint32_t>(v)));
  at_.resize(nodes, kNone);
}

Error AutoPlanner::refuse(NodeId n, std::string_view rule, const std::string& why) const {
  Error out{
      ErrorKind::cannot_apply,
      place_of(program_, graph_, n) + ": " + std::string(graph_.op_name(n)) + " [" + std::string(rule) + "]: " + why,
      {},
      "the chunks of %" + std::string(graph_.label(plan_.amplifier)) +
          " reach this node; --best-effort leaves the amplifier whole"};
  if (SourceId source = graph_.node(n).source; source) {
    out.where.file = graph_.pool().strings[graph_.pool().sources[source].file];
    out.where.line = graph_.pool().sources[source].line;
  }
  return out;
}

std::unordered_set<uint32_t> AutoPlanner::written_classes(const AliasAnalysis& alias) const {
  std::unordered_set<uint32_t> out;
  for (NodeId n : graph_.nodes()) {
    if (const OpInfo* op = graph_.op_info(n); op != nullptr && op->has(kWait)) continue;
    for (StorageId s : alias.writes(n)) out.insert(alias.storage(s).alias_class);
  }
  return out;
}

bool AutoPlanner::are_exchangeable(const AliasAnalysis& alias, const std::unordered_set<uint32_t>& written, ValueId a,
                                   ValueId b) {
  for (ValueId v : {a, b})
    if (const StorageId s = alias.storage_of(v); !s.is_none() && written.contains(alias.storage(s).alias_class))
      return false;
  return true;
}

void AutoPlanner::forget_recomputation() {
  const AliasAnalysis alias(program_, graph_);
  const auto written = written_classes(alias);
  const ValueNumbers numbers(graph_, alias, ValueNumbers::Launches::functions);
  std::vector<bool> from(graph_.value_id_limit(), false);
  std::vector<NodeId> again;
  for (NodeId n = plan_.amplifier; n; n = graph_.next(n)) {
    bool any = n == plan_.amplifier;
    for_operands(graph_, n, [&](ValueId v) { any = any || from[v.index]; });
    for (uint32_t i = 0; any && i < graph_.node(n).result_count; ++i) from[graph_.node(n).result(i).index] = true;
    const NodeId leader = numbers.leader(n);
    bool same = leader != n && graph_.node(n).result_count > 0 && from[graph_.node(leader).result(0).index];
    for (uint32_t i = 0; same && i < graph_.node(n).result_count; ++i)
      same = are_exchangeable(alias, written, graph_.node(n).result(i), graph_.node(leader).result(i));
    if (same) again.push_back(n);
  }
  for (NodeId n : again)
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      graph_.replace_uses(graph_.node(n).result(i), graph_.node(numbers.leader(n)).result(i));
  for (size_t i = again.size(); i-- > 0;)
    if (!graph_.has_used_result(again[i])) graph_.erase(again[i]);
}

void AutoPlanner::find_fills() {
  for (NodeId n : graph_.nodes()) mark_fill(n);
}

void AutoPlanner::mark_fill(NodeId n) {
  const OpInfo* op = graph_.op_info(n);
  if (op != nullptr && is_constant_fill(*op) && graph_.node(n).result_count == 1)
    state(graph_.node(n).result(0)).kind = AxisKind::constant;
}

Status AutoPlanner::walk() {
  for (NodeId n = plan_.amplifier; n;) {
    if (!depends(n)) {
      if (auto first = makes_large(n) ? rewriter_.rewrite_write(n) : std::nullopt) {
        grow();
        n = *first;
        continue;
      }
      mark_fill(n);
      n = graph_.next(n);
      continue;
    }
    if (n != plan_.amplifier)
      if (auto first = rewriter_.rewrite(n)) {
        grow();
        n = *first;
        continue;
      }
    const NodeId previous = graph_.previous(n);
    auto chunked = visit(n);
    if (!chunked.ok() && n == plan_.amplifier) return std::move(chunked.error());
    if (!chunked.ok() && push_down(n)) {
      n = graph_.next(previous);
      continue;
    }
    note(n, std::move(chunked));
    n = graph_.next(n);
  }
  return ok_status();
}

bool AutoPlanner::push_down(NodeId n) {
  if (graph_.node(n).result_count != 1 || !is_large(graph_.node(n).result(0)) || graph_.previous(n).is_none())
    return false;
  const bool done = rewriter_.push_down(n);
  grow();
  return done;
}

void AutoPlanner::note(NodeId n, Result<AutoNode> chunked) {
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
    depends_[graph_.node(n).result(i).index] = true;
    unknown_[graph_.node(n).result(i).index] = !chunked.ok();
  }
  at_[n.index] = nodes_.size();
  nodes_.push_back(chunked.ok() ? std::move(*chunked) : AutoNode{n, {}, {}});
  errors_.push_back(chunked.ok() ? std::nullopt : std::optional(std::move(chunked.error())));
}

Result<AutoNode> AutoPlanner::visit(NodeId n) {
  const OpInfo* op = graph_.op_info(n);
  bool known = true;
  for_operands(graph_, n, [&](ValueId v) { known = known && !unknown_[v.index]; });
  if (!known) return refuse(n, "no rule", "what it takes is not chunked");
  if (op == nullptr) return refuse(n, "no rule", "nothing is known about this op, and an operand is chunked");
  const AxisRow* row = find_axis_rule(*op);
  if (op->has(kCollective) && row == nullptr)
    return refuse(n, "collective", "it talks to other ranks, and no rule says what that does to chunks");
  if (draws_random(graph_, n))
    return refuse(n, "random numbers", "its numbers would be those of the first chunk in every chunk");
  const AutoCut& cut = plan_.cut;
  const Along seed = cut.along();
  if (n == plan_.amplifier) plan_.world.seeds[cut.operand.index] = along_state(seed);
  AxisCall call(&plan_.world, program_, n);
  const Status done = run_rule(call, row);
  plan_.world.seeds[cut.operand.index] = AxisState();
  if (!done.ok()) return refuse(n, row == nullptr ? "no rule" : row->name, done.error().message);
  if (!call.is_plain())
    return refuse(n, row->name, "its chunks would have to be weighed, or put together within the body");
  AutoNode out{n, std::move(call.edits), std::move(call.slices)};
  if (n == plan_.amplifier) {
    if (call.given.empty() || call.given[0].kind != AxisKind::along)
      return refuse(n, row->name, "it contracts the axis that is cut");
    if (std::ranges::none_of(out.slices, [&](const SliceWish& s) { return s.value == cut.operand; }))
      out.slices.push_back({cut.operand, seed});
  }
  for (const AxisState& s : call.given)
    if (s.kind == AxisKind::along && !plan_.world.domains[s.along.domain].is_rows)
      return refuse(n, row->name, "its result lies in an order that the data decides");
  for (const auto& [v, s] : call.constants) make_fill(v, s);
  for (uint32_t i = 0; i < call.node.result_count; ++i) state(call.node.result(i)) = call.given[i];
  join_producers(&out);
  return out;
}

Status AutoPlanner::run_rule(AxisCall& call, const AxisRow* row) const {
  bool along = false, partial = false, size = false;
  for_operands(graph_, call.id, [&](ValueId v) {
    const AxisState& s = call.state(v);
    if (s.common) return;
    along = along || s.kind == AxisKind::along, partial = partial || s.kind == AxisKind::partial,
    size = size || s.kind == AxisKind::size;
  });
  if (size && (row == nullptr || (row->takes & kTakesSizes) == 0))
    return call.fail("it takes a number that differs from chunk to chunk");
  if (partial && !along && (row == nullptr || (row->rule != axis::same && row->rule != axis::reduce_ranks)))
    return call.op.writes() ? call.fail("it writes a sum over chunks") : axis::partial(call);
  if (row == nullptr) return call.fail("no axis rule says what it does to chunks");
  return run_axis_rule(*row, call);
}

void AutoPlanner::make_fill(ValueId v, const AxisState& s) {
  const NodeId def = graph_.value(v).def;
  state(v) = s;
  AutoNode fill{def, {{static_cast<uint32_t>(graph_.op_info(def)->param_index("size")), s.along.axis, s.along}}, {}};
  joined_.emplace(def, std::move(fill));
}

bool AutoPlanner::join(ValueId v, const Along& wanted, int depth) {
  constexpr int kMaxDepth = 64;
  const NodeId def = graph_.value(v).def;
  if (!def || depth > kMaxDepth || depends_[v.index] || !is_large(v)) return false;
  if (auto it = joined_.find(def); it != joined_.end())
    return state(v).kind == AxisKind::along && state(v).along == wanted;
  // A node visited earlier uses the whole value, and must not find a chunk instead.
  for (NodeId user : graph_.users(v))
    if (at_[user.index] != kNone) return false;
  const OpInfo* op = graph_.op_info(def);
  if (op == nullptr || !op->has(kPure) || draws_random(graph_, def) || graph_.node(def).result_count != 1) return false;
  auto node = made_along(def, wanted, true);
  if (!node) node = made_along(def, wanted, false);
  if (!node) return false;
  std::erase_if(node->slices, [&](const SliceWish& wish) { return join(wish.value, wish.along, depth + 1); });
  joined_.emplace(def, std::move(*node));
  state(v) = along_state(wanted);
  return true;
}

std::optional<AutoNode> AutoPlanner::made_along(NodeId n, const Along& wanted, bool with_fills) {
  const AxisRow* row = find_axis_rule(*graph_.op_info(n));
  if (row == nullptr) return std::nullopt;
  std::vector<ValueId> operands;
  for_operands(graph_, n, [&](ValueId v) {
    if (is_tensor(graph_, v)) operands.push_back(v);
  });
  for (ValueId operand : operands) {
    if (with_fills && state(operand).kind == AxisKind::constant) continue;
    for (uint32_t axis = 0; axis < graph_.type(operand).shape.size(); ++axis) {
      const Along seed{wanted.domain, axis, wanted.unit, wanted.runs};
      plan_.world.seeds[operand.index] = along_state(seed);
      AxisCall call(&plan_.world, program_, n);
      const bool fits = graph_.type(operand).shape[axis] == call.extent(seed) && run_axis_rule(*row, call).ok() &&
                        call.is_plain() && (call.constants.empty() || with_fills) && call.given.size() == 1 &&
                        call.given[0].kind == AxisKind::along && call.given[0].along == wanted && !call.given[0].local;
      plan_.world.seeds[operand.index] = AxisState();
      if (!fits || !std::ranges::all_of(call.constants, [&](const auto& fill) {
            return fill.second.kind == AxisKind::along && fill.second.along.domain == wanted.domain &&
                   std::ranges::none_of(graph_.users(fill.first),
                                        [&](NodeId user) { return at_[user.index] != kNone; });
          }))
        continue;
      for (const auto& [v, s] : call.constants) make_fill(v, s);
      AutoNode out{n, std::move(call.edits), std::move(call.slices)};
      if (std::ranges::none_of(out.slices, [&](const SliceWish& s) { return s.value == operand; }))
        out.slices.push_back({operand, seed});
      return out;
    }
  }
  return std::nullopt;
}

}  // namespace sg
