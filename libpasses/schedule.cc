#include "libpasses/schedule.h"

#include <algorithm>

#include "libgraph/operands.h"

namespace sg {

uint32_t class_of(const AliasAnalysis& alias, ValueId v) {
  const StorageId s = alias.storage_of(v);
  return s.is_none() ? kNoClass : alias.storage(s).alias_class;
}

Schedule::Schedule(const Graph& graph, const AliasAnalysis& alias) : position_(graph.node_id_limit()) {
  uint32_t classes = 0;
  for (const Storage& s : alias.storages()) classes = std::max(classes, s.alias_class + 1);
  writes_.resize(classes);
  last_read_.resize(classes);
  last_use_.resize(classes);
  uint32_t at = 0;
  for (NodeId n : graph.nodes()) {
    position_[n.index] = ++at;
    for (StorageId s : alias.writes(n)) {
      std::vector<uint32_t>& list = writes_[alias.storage(s).alias_class];
      if (list.empty() || list.back() != at) list.push_back(at);
    }
    for (StorageId s : alias.reads(n)) last_read_[alias.storage(s).alias_class] = at;
    for_operands(graph, n, [&](ValueId v) {
      const uint32_t c = class_of(alias, v);
      if (c != kNoClass) last_use_[c] = at;
    });
  }
  for (const Output& output : graph.outputs())
    if (output.value)
      if (uint32_t c = class_of(alias, output.value); c != kNoClass) last_use_[c] = UINT32_MAX;
}

uint32_t Schedule::next_write(uint32_t alias_class, uint32_t after) const {
  const auto& list = writes_[alias_class];
  auto it = std::upper_bound(list.begin(), list.end(), after);
  return it == list.end() ? UINT32_MAX : *it;
}

bool Schedule::is_written_after(uint32_t alias_class, uint32_t after) const {
  return !writes_[alias_class].empty() && writes_[alias_class].back() > after;
}

bool is_private(const AliasAnalysis& alias, const Schedule& schedule, ValueId v, uint32_t after) {
  const StorageId s = alias.storage_of(v);
  if (s.is_none()) return true;
  const Storage& storage = alias.storage(s);
  return storage.certain && !schedule.is_written_after(storage.alias_class, after) && !alias.escapes(s);
}

bool is_private_behind(const Graph& graph, const AliasAnalysis& alias, const Schedule& schedule, NodeId wait) {
  return is_private(alias, schedule, graph.node(wait).result(0), schedule.position(wait));
}

}  // namespace sg
