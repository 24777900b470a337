#include "librun/value_choice.h"

#include <algorithm>
#include <vector>

#include "libgraph/job.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

bool chooses(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (!op || !op->has(kChooses)) return false;
  bool by_float = false;  // or by a mask, which comes from floats
  for_operands(graph, n, [&](ValueId v) {
    const Type& type = graph.type(v);
    by_float |= type.kind == TypeKind::tensor && !is_integral(type.dtype);
  });
  return by_float;
}

bool is_free_product(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op && op->has(kContraction) && !keeps_order(SumOrder::forward, graph, n);
}

// Nodes of a program for which `is` holds, those of nested graphs for the nodes that call them.
template <class Is>
bool holds(const Program& program, const Graph& graph, NodeId n, const Is& is) {
  if (is(graph, n)) return true;
  bool found = false;
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (found || !a.is(ArgKind::graph)) return;
      const Graph& body = program.nested[a.as_graph().index]->graph;
      for (NodeId inner : body.nodes()) found = found || holds(program, body, inner, is);
    });
  return found;
}

// Whether a choice depends on a product that is not of the forward.
bool has_free_choice(const Program& program, const Graph& graph) {
  std::vector<bool> depends(graph.value_id_limit());
  for (NodeId n : graph.nodes()) {
    bool does = false;
    for_operands(graph, n, [&](ValueId v) { does |= depends[v.index]; });
    if (does && holds(program, graph, n, chooses)) return true;
    if (!does && !holds(program, graph, n, is_free_product)) continue;
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i) depends[graph.node(n).result(i).index] = true;
    if (writes_arguments(graph, n)) for_operands(graph, n, [&](ValueId v) { depends[v.index] = true; });
  }
  return false;
}

SumOrder order_in(const Program& program, const Graph& graph) {
  if (has_free_choice(program, graph)) return SumOrder::all;
  for (NodeId n : graph.nodes())
    if (chooses(graph, n)) return SumOrder::forward;
  return SumOrder::free;
}

}  // namespace

SumOrder sum_order_of(const Job& job) {
  SumOrder out = SumOrder::free;
  for (const auto& program : job.programs) {
    out = std::max(out, order_in(*program, program->graph));
    for (const auto& nested : program->nested) out = std::max(out, order_in(*program, nested->graph));
  }
  return out;
}

bool keeps_order(SumOrder order, const Graph& graph, NodeId n) {
  const bool is_forward = graph.node(n).phase == Phase::forward || graph.meta(n).copy.kind == CopyKind::remat;
  return order == SumOrder::all || (order == SumOrder::forward && is_forward);
}

}  // namespace sg
