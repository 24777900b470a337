// Whose parameter a node of an optimizer works for: such nodes are in no module themselves.
//
// By what a node takes: a parameter, state under a parameter's name (`optimizer.exp_avg.layers.0.weight`), what works
// for one already, else gradients. What takes of several modules (the norm of all gradients) works for none of them.
// Linear in the graph.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/graph.h"

namespace sg {

class UpdateModules {
 public:
  explicit UpdateModules(const Graph& graph);

  std::string_view of(NodeId n) const { return of_node_[n.index]; }  // empty = none
  // The parameter that a buffer's name ends with; the name itself where there is none.
  std::string_view parameter_of(std::string_view fqn) const;

 private:
  std::string_view module_of_operands(const Graph& graph, NodeId n) const;

  std::unordered_map<std::string_view, std::string_view> modules_;  // by parameter
  std::vector<std::string_view> of_value_;                          // inputs, gradients, results of an optimizer
  std::vector<bool> is_gradient_;                                   // by value
  std::vector<std::string_view> of_node_;
};

}  // namespace sg
