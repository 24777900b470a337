#include "librun/check/tie_order.h"

#include <string_view>
#include <vector>

#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

bool says_stable(const Graph& graph, NodeId n, const OpInfo& op) {
  const Arg* stable = argument(graph.node(n), op, graph.pool().strings, "stable");
  return stable && stable->is(ArgKind::boolean) && stable->as_bool();
}

// Whether the value is the places of elements. The elements themselves are the same in any order of equal ones.
bool has_open_order(const Graph& graph, ValueId v) {
  const NodeId n = graph.value(v).def;
  const OpInfo* op = graph.op_info(n);
  if (!op) return false;
  const std::string_view name = op->name;
  if (name.starts_with("aten.sort.")) return v == graph.node(n).result(1) && !says_stable(graph, n, *op);
  if (name.starts_with("aten.argsort.")) return !says_stable(graph, n, *op);
  return name == "aten.topk.default" && v == graph.node(n).result(1);
}

}  // namespace

NodeId tie_order_behind(const Graph& graph, NodeId n) {
  std::vector<bool> seen(graph.node_id_limit());
  std::vector<NodeId> reached{n};  // a queue: the nearest first
  NodeId found;
  for (size_t i = 0; i < reached.size() && !found; ++i)
    for_operands(graph, reached[i], [&](ValueId v) {
      const NodeId def = graph.value(v).def;
      if (!def || found) return;
      if (has_open_order(graph, v)) found = def;
      if (seen[def.index]) return;
      seen[def.index] = true;
      reached.push_back(def);
    });
  return found;
}

std::string tie_order_hint(const Graph& graph, NodeId n) {
  const NodeId order = tie_order_behind(graph, n);
  if (!order) return "";
  const std::string_view op = graph.op_name(order);
  return "It depends on the places that %" + std::string(graph.label(order)) + " (" + std::string(op) +
         ") gives: of equal elements PyTorch's order depends on the processor, and sg-run keeps the input's; capture "
         "with " +
         (op.starts_with("aten.topk") ? "sort(..., stable=True) in its place" : "stable=True");
}

}  // namespace sg
