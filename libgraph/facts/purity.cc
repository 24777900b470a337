#include "libgraph/facts/purity.h"

#include "libgraph/graph.h"
#include "libgraph/op.h"

namespace sg {

bool is_pure(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr) return false;
  return op->has(kPure) || (op->has(kWritesInTraining) && !writes_arguments(graph, n));
}

}  // namespace sg
