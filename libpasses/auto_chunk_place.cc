#include "libpasses/auto_chunk_planner.h"

namespace sg {

Status AutoPlanner::find_place() {
  std::vector<uint32_t> position(graph_.node_id_limit(), 0);
  std::vector<NodeId> order;
  for (NodeId n : graph_.nodes()) position[n.index] = static_cast<uint32_t>(order.size()), order.push_back(n);
  uint32_t first = UINT32_MAX, last = 0, needed = 0, earliest = UINT32_MAX;
  for (const AutoNode& body : plan_.body) {
    const uint32_t at = position[body.node.index];
    earliest = std::min(earliest, at);
    if (!is_joined(body.node)) first = std::min(first, at), last = std::max(last, at);
    for_operands(graph_, body.node, [&](ValueId v) {
      if (const NodeId def = graph_.value(v).def; def && !plan_.is_body[def.index])
        needed = std::max(needed, position[def.index] + 1);
    });
  }
  const uint32_t place = std::max(first, needed);
  plan_.place = place < order.size() ? order[place] : NodeId();
  for (uint32_t at = first; at < place; ++at)
    if (!plan_.is_body[order[at].index] && at_[order[at].index] != kNone) plan_.behind.push_back(order[at]);
  return check_moves(order, earliest, std::max(last + 1, place));
}

Status AutoPlanner::check_moves(const std::vector<NodeId>& order, uint32_t first, uint32_t end) {
  const AliasAnalysis alias(program_, graph_);
  std::vector<bool> is_behind(graph_.node_id_limit(), false);
  for (NodeId n : plan_.behind) is_behind[n.index] = true;
  struct Touched {
    uint8_t groups = 0;
    bool written = false;
  };
  std::unordered_map<uint32_t, Touched> touched;
  bool moves_order = false, stays_order = false;
  for (uint32_t at = first; at < end; ++at) {
    const NodeId n = order[at];
    const bool moved = is_behind[n.index], own = plan_.is_body[n.index];
    auto note = [&](StorageId s, bool writes) {
      Touched& t = touched[alias.storage(s).alias_class];
      t.groups |= own ? 1 : moved ? 2 : 4, t.written = t.written || writes;
    };
    for (StorageId s : alias.reads(n)) note(s, false);
    for (StorageId s : alias.writes(n)) note(s, true);
    const bool ordered = (alias.effects(n) & (kEffectCollective | kEffectWait | kEffectOpaque)) != 0;
    (moved ? moves_order : stays_order) |= ordered;
  }
  for (uint32_t at = first; at < end; ++at)
    for (auto list : {alias.reads(order[at]), alias.writes(order[at])})
      for (StorageId s : list)
        if (const Touched& t = touched[alias.storage(s).alias_class]; t.written && (t.groups & (t.groups - 1)) != 0)
          return refuse(order[at], "memory",
                        "%" + std::string(graph_.name(alias.storage(s).owner)) +
                            " is written between nodes that would change places");
  if (moves_order && stays_order && !plan_.behind.empty())
    return refuse(plan_.behind[0], "collective", "it would change places with a collective");
  return check_written_results(alias);
}

Status AutoPlanner::check_written_results(const AliasAnalysis& alias) {
  if (plan_.results.empty()) return ok_status();
  std::unordered_set<uint32_t> classes;
  for (ValueId v : plan_.results)
    if (const StorageId s = alias.storage_of(v); !s.is_none()) classes.insert(alias.storage(s).alias_class);
  for (NodeId n : graph_.nodes()) {
    if (plan_.is_body[n.index]) continue;
    for (StorageId s : alias.writes(n))
      if (classes.contains(alias.storage(s).alias_class))
        return refuse(n, "memory",
                      "it writes to %" + std::string(graph_.name(alias.storage(s).owner)) + ", which is in chunks");
  }
  return ok_status();
}

}  // namespace sg
