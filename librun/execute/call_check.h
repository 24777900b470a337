// Checks one call against the op's type rule, with the sizes of this run.
//
// The verifier checks types before anything runs, but two symbols that nothing distinguishes may be equal, so it
// accepts `mm` of [s0, s1] and [s2, s3]. At run time the numbers are known: if a node's types contain symbols, the same
// rule is applied again with numbers, so that kernels can trust types.
#pragma once

#include <span>

#include "libgraph/graph.h"
#include "librun/execute/arguments.h"
#include "librun/execute/bindings.h"

namespace sg {

// Whether the rule may find more at run time: some size or number of the node is not constant.
bool has_open_sizes(const Graph& graph, NodeId n);

// `values` holds the node's operands, and its results as far as they have memory; results with data-dependent sizes are
// none. Fails with the rule's reason.
Status check_sizes(const Graph& graph, NodeId n, const ValueTable& values, const Bindings& bindings);

// Binds those of `symbols`, which the node defines, that are a size, a stride or the offset of its results, views whose
// place the data says: to what the rule gives for the numbers of this run.
Status bind_view_sizes(const Graph& graph, NodeId n, std::span<const StrId> symbols, const ValueTable& values,
                       Bindings* bindings);

}  // namespace sg
