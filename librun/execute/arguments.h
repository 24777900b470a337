// Converts the arguments of a node to the parameters of a kernel call.
#pragma once

#include <span>
#include <vector>

#include "libgraph/graph.h"
#include "librun/execute/bindings.h"
#include "librun/kernel.h"

namespace sg {

// The values of a graph during a run, by ValueId: tensors, and numbers on the host.
struct ValueTable {
  std::vector<Tensor> tensors;  // dtype none = not yet available, or not a tensor
  std::vector<Scalar> scalars;

  std::span<const Tensor> results_of(const Node& node) const {
    if (node.result_count == 0) return {};
    return std::span(tensors).subspan(node.first_result.index, node.result_count);
  }
};

// Fills call->params() by the schema: given arguments, and defaults for the rest. REQUIRES: the symbols and values that
// the node uses are available. Fails on what no kernel accepts: a value of a list type, a symbol without a number.
Status read_arguments(const Graph& graph, NodeId n, const ValueTable& values, const Bindings& bindings,
                      KernelCall* call);

}  // namespace sg
