#include "libpasses/auto_chunk/auto_chunk_planner.h"

#include "libpasses/chunk/chunk_layout.h"
#include "libpasses/value_numbers.h"

namespace sg {

Status AutoPlanner::collect_body() {
  grow();
  std::vector<bool> leads(nodes_.size(), false);
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = graph_.node(nodes_[i].node);
    bool in = false;
    for_operands(graph_, nodes_[i].node, [&](ValueId v) { in = in || is_large_chunked(v); });
    for (uint32_t r = 0; r < node.result_count; ++r) {
      in = in || (errors_[i] ? false : is_large_chunked(node.result(r)));
      graph_.for_each_use(node.result(r), [&](Use use) {
        in = in || (use.user && at_[use.user.index] != kNone && leads[at_[use.user.index]]);
      });
    }
    leads[i] = in;
  }
  plan_.is_body.assign(graph_.node_id_limit(), false);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!leads[i]) continue;
    reached_ = i;
    if (errors_[i]) return *errors_[i];
    add(std::move(nodes_[i]));
  }
  for (size_t i = 0; i < plan_.body.size(); ++i) add_producers(plan_.body[i].node);
  std::ranges::sort(plan_.body, [&](const AutoNode& a, const AutoNode& b) { return graph_.before(a.node, b.node); });
  return ok_status();
}

void AutoPlanner::add_producers(NodeId n) {
  for_operands(graph_, n, [&](ValueId v) {
    const NodeId def = graph_.value(v).def;
    if (!def || plan_.is_body[def.index] || state(v).kind != AxisKind::along) return;
    if (auto it = joined_.find(def); it != joined_.end()) add(it->second);
  });
}

void AutoPlanner::share_equal_operands() {
  const AliasAnalysis alias(program_, graph_);
  const ValueNumbers numbers(graph_, alias, ValueNumbers::Launches::functions);
  const auto written = written_classes(alias);
  for (AutoNode& body : plan_.body) {
    std::vector<std::pair<ValueId, ValueId>> swaps;
    for_operands(graph_, body.node, [&](ValueId v) {
      const NodeId def = graph_.value(v).def;
      if (!def || is_made_in_body(v) || numbers.leader(def) == def) return;
      const ValueId first = graph_.node(numbers.leader(def)).result(graph_.value(v).index);
      if (graph_.value(first).type == graph_.value(v).type && !is_made_in_body(first) &&
          are_exchangeable(alias, written, v, first))
        swaps.emplace_back(v, first);
    });
    for (const auto& [v, first] : swaps) {
      graph_.replace_uses_in(body.node, v, first);
      for (SliceWish& wish : body.slices)
        if (wish.value == v) wish.value = first;
    }
  }
}

Status AutoPlanner::check_body() {
  const AliasAnalysis alias(program_, graph_);
  const auto written = written_classes(alias);
  const auto is_written = [&](ValueId v) {
    return !alias.storage_of(v).is_none() && written.contains(alias.storage(alias.storage_of(v)).alias_class);
  };
  for (const AutoNode& body : plan_.body) {
    if ((alias.effects(body.node) & ~uint32_t{kEffectCollective | kEffectWait}) != 0)
      return refuse(body.node, "effects", "it does more than compute its results");
    SG_TRY(check_collective(body.node));
    const ValueId first = graph_.node(body.node).result_count > 0 ? graph_.node(body.node).result(0) : ValueId();
    if (!first.is_none() && graph_.op_info(body.node)->has(kMayAlias) && is_written(first))
      return refuse(body.node, "memory",
                    "%" + std::string(graph_.name(first)) +
                        " is written, and whether it is a copy may differ from chunk to chunk");
    if (is_joined(body.node) && is_shared(first) && is_written(first))
      return refuse(body.node, "memory", "it is written in chunks, and taken as a whole");
    for (StorageId s : alias.writes(body.node))
      for (StorageId member : alias.class_members(alias.storage(s).alias_class))
        if (const NodeId def = alias.storage(member).def; !def || !plan_.is_body[def.index])
          return refuse(body.node, "memory",
                        "it writes to %" + std::string(graph_.name(alias.storage(member).owner)) +
                            ", which is not a chunk's own");
  }
  return ok_status();
}

Status AutoPlanner::check_collective(NodeId n) {
  if (!graph_.op_info(n)->has(kCollective)) return ok_status();
  bool waited = true;
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
    graph_.for_each_use(graph_.node(n).result(i), [&](Use use) {
      waited = waited && use.user && plan_.is_body[use.user.index] && graph_.op_info(use.user)->has(kWait);
    });
  if (!waited) return refuse(n, "collective", "it is not waited for within the chunk that launches it");
  plan_.asks_ranks = plan_.has_collectives = true;
  return ok_status();
}

bool AutoPlanner::is_shared(ValueId v) const {
  bool out = false;
  graph_.for_each_use(v, [&](Use use) { out = out || !use.user || !plan_.is_body[use.user.index]; });
  return out;
}

void AutoPlanner::find_results() {
  for (const AutoNode& body : plan_.body)
    for (uint32_t i = 0; !is_joined(body.node) && i < graph_.node(body.node).result_count; ++i)
      if (const ValueId v = graph_.node(body.node).result(i); is_shared(v)) plan_.results.push_back(v);
}

Status AutoPlanner::check_results() {
  for (ValueId v : plan_.results) {
    const AxisState& s = state(v);
    const NodeId def = graph_.value(v).def;
    const std::string name = "%" + std::string(graph_.name(v));
    if (s.kind == AxisKind::along && (!plan_.world.domains[s.along.domain].is_rows || s.local))
      return refuse(def, "results", name + " lies in an order of each chunk's own, and is needed whole");
    if ((s.kind == AxisKind::along || s.kind == AxisKind::partial) &&
        !axes_in_memory(&graph_.pool(), program_, graph_.type(v)))
      return refuse(def, "results",
                    name + " is needed whole, and has a layout that no new tensor has: make it contiguous");
    if (s.kind == AxisKind::size && !graph_.type(v).value)
      return refuse(def, "results", name + " is a number of each chunk's own, and is needed whole");
  }
  return ok_status();
}

}  // namespace sg
