#include "libpasses/auto_chunk/auto_chunk_planner.h"

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
  return check_moves(order, earliest, place, std::max(last + 1, place));
}

// The new order: nodes that stay before the place, the body, nodes that move behind it, the rest. Accesses of memory
// that another node writes must keep their order relative to the write.
Status AutoPlanner::check_moves(const std::vector<NodeId>& order, uint32_t first, uint32_t place, uint32_t end) {
  const AliasAnalysis alias(program_, graph_);
  std::vector<bool> is_behind(graph_.node_id_limit(), false);
  for (NodeId n : plan_.behind) is_behind[n.index] = true;
  struct Latest {
    uint64_t touched = 0, written = 0;  // positions in the new order, of all earlier nodes
  };
  std::unordered_map<uint32_t, Latest> memory;
  bool moves_order = false, stays_order = false, is_opaque = false;
  for (uint32_t at = first; at < end; ++at) {
    const NodeId n = order[at];
    const bool moved = is_behind[n.index], own = plan_.is_body[n.index];
    const uint64_t part = own ? 1 : moved ? 2 : at < place ? 0 : 3;
    const uint64_t now = part << 32 | at;
    const OpInfo* op = graph_.op_info(n);
    const auto changes_places = [&](StorageId s, bool writes) {
      Latest& latest = memory[alias.storage(s).alias_class];
      const bool changes = now < (writes ? latest.touched : latest.written);
      latest.touched = std::max(latest.touched, now);
      if (writes) latest.written = std::max(latest.written, now);
      return changes;
    };
    for (bool writes : {false, true})
      for (StorageId s : writes ? alias.writes(n) : alias.reads(n))
        if (changes_places(s, writes && (op == nullptr || !op->has(kWait))))
          return refuse(n, "memory",
                        "%" + std::string(graph_.name(alias.storage(s).owner)) +
                            " is written between nodes that would change places");
    const bool ordered = (alias.effects(n) & (kEffectCollective | kEffectWait | kEffectOpaque)) != 0;
    (moved || own ? moves_order : stays_order) |= ordered;
    is_opaque |= (alias.effects(n) & kEffectOpaque) != 0;
  }
  if (moves_order && stays_order && is_opaque)
    return refuse(plan_.amplifier, "collective",
                  "collectives would change places with an op that nothing is known about");
  plan_.asks_ranks |= moves_order && stays_order;
  return check_written_results(alias);
}

Status AutoPlanner::check_written_results(const AliasAnalysis& alias) {
  if (plan_.results.empty()) return ok_status();
  std::unordered_map<uint32_t, int> classes;  // how many results each class holds
  for (ValueId v : plan_.results)
    if (const StorageId s = alias.storage_of(v); !s.is_none()) ++classes[alias.storage(s).alias_class];
  for (NodeId n : graph_.nodes()) {
    if (plan_.is_body[n.index]) continue;
    for (StorageId s : alias.writes(n))
      if (const auto it = classes.find(alias.storage(s).alias_class); it != classes.end() && it->second > 1)
        return refuse(n, "memory",
                      "it writes to %" + std::string(graph_.name(alias.storage(s).owner)) +
                          ", which leaves the chunks under two names");
  }
  return ok_status();
}

}  // namespace sg
