// One call with the sizes of this run against the op's type rule.
//
// The verifier holds types against the rules before anything runs, but two symbols that nothing tells apart may be
// equal, so `mm` of [s0, s1] and [s2, s3] passes. What runs has numbers: where a node's types hold symbols, the same
// rule is asked again with them, and kernels go on trusting types.
#pragma once

#include "libgraph/graph.h"
#include "librun/arguments.h"
#include "librun/bindings.h"

namespace sg {

// Whether the rule can say more at run time than it could before: some size or number of the node is no constant.
bool has_open_sizes(const Graph& graph, NodeId n);

// `values` holds what the node takes, and its results where they have memory; results whose size the data decides are
// none. Fails with the rule's reason.
Status check_sizes(const Graph& graph, NodeId n, const ValueTable& values, const Bindings& bindings);

}  // namespace sg
