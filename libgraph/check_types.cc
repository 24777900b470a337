#include "libgraph/check_types.h"

#include "libgraph/infer.h"

namespace sg {
namespace {

void check_graph(const Graph& graph, TypeInferrer& inferrer, std::vector<TypeDisagreement>* found) {
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    if (op == nullptr || op->infer == nullptr) continue;
    const Node& node = graph.node(n);
    auto types = inferrer.infer(graph, n);
    for (uint32_t i = 0; i < node.result_count; ++i) {
      const Type& recorded = graph.type(node.result(i));
      if (recorded.kind == TypeKind::unknown || (types.ok() && (*types)[i] == recorded)) continue;
      TypeDisagreement d{&graph, n, i, {}, recorded, {}};
      if (types.ok()) d.inferred = (*types)[i];
      else d.reason = types.error().message;
      found->push_back(std::move(d));
      if (!types.ok()) break;   // one reason a node
    }
  }
}

}  // namespace

std::vector<TypeDisagreement> check_types(const Program& program) {
  std::vector<TypeDisagreement> found;
  TypeInferrer inferrer(program);
  check_graph(program.graph, inferrer, &found);
  for (const auto& nested : program.nested) check_graph(nested->graph, inferrer, &found);
  return found;
}

}  // namespace sg
