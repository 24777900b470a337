// What a call computes, as opposed to its op: a batch norm has an effect only where it updates statistics.
#pragma once

#include "libgraph/base/ids.h"

namespace sg {

class Graph;

// Whether this call has no effect besides its results, and equal arguments give equal results: kPure, or an op that
// writes in training and is given nothing to write. Of ops that the table has.
bool is_pure(const Graph& graph, NodeId n);

}  // namespace sg
