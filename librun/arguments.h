// From the arguments of a node to the parameters of a kernel call.
#pragma once

#include "libgraph/graph.h"
#include "librun/bindings.h"
#include "librun/kernel.h"

namespace sg {

// The values of a graph while it runs, by ValueId: tensors, and the numbers that the host holds.
struct ValueTable {
  std::vector<Tensor> tensors;  // dtype none = not there (yet), or no tensor
  std::vector<Scalar> scalars;
};

// Fills call->params() by the schema: arguments as given, defaults for the rest. Symbols and values that it needs are
// there. Fails on what no kernel can take: a value of a list type, a symbol without a number.
Status read_arguments(const Graph& graph, NodeId n, const ValueTable& values, const Bindings& bindings,
                      KernelCall* call);

}  // namespace sg
