// GraphIndex: the nodes of a graph by op, phase and module, each list in schedule order. A snapshot: changing the graph
// does not change it.
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "libgraph/graph.h"
#include "libgraph/module_pattern.h"

namespace sg {

class GraphIndex {
 public:
  explicit GraphIndex(const Graph& graph);

  std::span<const NodeId> by_op(OpId op) const;
  std::span<const NodeId> by_op(std::string_view name) const;  // full name
  std::span<const NodeId> by_phase(Phase phase) const { return phases_[static_cast<size_t>(phase)]; }
  std::span<const NodeId> by_module(StrId module) const;  // this very name; none = outside any module

  // Nodes in a module that the pattern names, those with such a module among NodeMeta::more_modules included.
  std::vector<NodeId> matching(const ModulePattern& pattern) const;

  // Names of modules that occur, in order of first appearance.
  const std::vector<StrId>& modules() const { return modules_; }

 private:
  const Graph& graph_;
  std::unordered_map<OpId, std::vector<NodeId>, IdHash> ops_;
  std::unordered_map<StrId, std::vector<NodeId>, IdHash> by_module_;
  std::array<std::vector<NodeId>, 3> phases_;
  std::vector<StrId> modules_;
};

}  // namespace sg
