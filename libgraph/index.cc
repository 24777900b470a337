#include "libgraph/index.h"

#include <algorithm>

namespace sg {

GraphIndex::GraphIndex(const Graph& graph) : graph_(graph) {
  auto add_module = [&](StrId module, NodeId n) {
    auto [it, is_new] = by_module_.try_emplace(module);
    if (is_new && !module.is_none()) modules_.push_back(module);
    if (it->second.empty() || it->second.back() != n) it->second.push_back(n);
  };
  for (NodeId n : graph.nodes()) {
    const Node& node = graph.node(n);
    ops_[node.op].push_back(n);
    phases_[static_cast<size_t>(node.phase)].push_back(n);
    add_module(node.module, n);
    for (StrId more : graph.meta(n).more_modules) add_module(more, n);
  }
}

std::span<const NodeId> GraphIndex::by_op(OpId op) const {
  auto it = ops_.find(op);
  return it == ops_.end() ? std::span<const NodeId>() : std::span<const NodeId>(it->second);
}

std::span<const NodeId> GraphIndex::by_op(std::string_view name) const {
  for (const auto& [op, nodes] : ops_)  // names are unique in the pool
    if (graph_.pool().op_name(op) == name) return nodes;
  return {};
}

std::span<const NodeId> GraphIndex::by_module(StrId module) const {
  auto it = by_module_.find(module);
  return it == by_module_.end() ? std::span<const NodeId>() : std::span<const NodeId>(it->second);
}

std::vector<NodeId> GraphIndex::matching(const ModulePattern& pattern) const {
  std::vector<NodeId> out;
  for (StrId module : modules_)
    if (pattern.matches(graph_.pool().strings[module])) {
      auto nodes = by_module(module);
      out.insert(out.end(), nodes.begin(), nodes.end());
    }
  std::sort(out.begin(), out.end(), [&](NodeId a, NodeId b) { return graph_.before(a, b); });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace sg
