// Where a graph's code learns its symbolic sizes: from an input, from a node's result, or as a parameter.
#pragma once

#include <unordered_map>
#include <vector>

#include "libgraph/job.h"

namespace sg::python {

// `symbol` is a dimension of `value`, or `value` itself; with factor and offset: size == factor * symbol + offset.
struct SymbolSource {
  static constexpr int kScalar = -1;
  StrId symbol;
  ValueId value;
  int dimension = kScalar;
  int64_t factor = 1, offset = 0;
};

struct GraphSymbols {
  std::vector<SymbolSource> from_inputs;
  std::unordered_map<NodeId, std::vector<SymbolSource>, IdHash> from_node;  // known after this node
  std::vector<StrId> parameters;  // known by neither when they are needed: the caller has to say
  std::vector<NodeId> needed_at;  // by parameter: the first node that needs it
};

// Plans for the main graph and every nested one; nested graphs that need parameters make their callers need them.
class SymbolPlan {
 public:
  // has_conditions: the main graph checks its guards and the sizes of its inputs, and so has to know their symbols.
  SymbolPlan(const Program& program, bool has_conditions);
  const GraphSymbols& main() const { return main_; }
  const GraphSymbols& nested(NestedId id) const { return nested_[id.index]; }
  bool is_too_deep() const { return is_too_deep_; }  // bodies in bodies, more than kMaxDepth: nothing else holds then

  static constexpr int kMaxDepth = 200;

 private:
  void plan_nested(NestedId id);
  GraphSymbols plan(const Graph& graph);
  std::vector<StrId> needs_of(const Graph& graph, NodeId n);

  const Program& program_;
  bool has_conditions_;
  GraphSymbols main_;
  std::vector<GraphSymbols> nested_;
  std::vector<uint8_t> planned_;  // by NestedId; set on entry, so that a cycle ends
  int depth_ = 0;
  bool is_too_deep_ = false;
};

}  // namespace sg::python
