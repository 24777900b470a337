#include "libgraph/edit/rewrite.h"

#include <cassert>

namespace sg {

NodeSpec spec_of(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  NodeSpec out;
  out.op = node.op;
  out.args = node.args;
  for (uint32_t i = 0; i < node.result_count; ++i) out.result_types.push_back(graph.value(node.result(i)).type);
  out.is_tuple = node.is_tuple;
  out.phase = node.phase;
  out.module = node.module;
  out.source = node.source;
  out.meta = node.meta;
  out.forward = node.forward;
  return out;
}

NodeId copy_node(Graph* graph, NodeId n, NodeId position, const OperandMap& operand, std::string_view suffix) {
  NodeSpec spec = spec_of(*graph, n);
  for (Arg& arg : spec.args)
    arg.walk_mutable([&](Arg& a) {
      if (a.is(ArgKind::value)) a.set_value(operand(a.as_value()));
    });
  for (uint32_t i = 0; i < graph->node(n).result_count; ++i)
    spec.names.push_back(std::string(graph->name(graph->node(n).result(i))) + std::string(suffix));
  if (spec.names.empty()) spec.label = std::string(graph->label(n)) + std::string(suffix);
  return graph->insert_before(position, spec);
}

void replace_results(Graph* graph, NodeId n, NodeId by) {
  assert(graph->node(n).result_count == graph->node(by).result_count);
  for (uint32_t i = 0; i < graph->node(n).result_count; ++i)
    graph->replace_uses(graph->node(n).result(i), graph->node(by).result(i));
}

}  // namespace sg
