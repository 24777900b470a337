// What a memory policy has written about recomputation, and what has come of it.
#pragma once

#include <cstddef>

#include "libgraph/job.h"

namespace sg {

bool is_recomputed(Recompute tag);  // prefer_recompute or must_recompute

// Whether the node does work of the forward: there, or in a copy that is computed again later.
bool does_forward_work(const Graph& graph, NodeId n);

// Forward nodes of the main graphs that are tagged for recomputation and still kept for the backward, in a job on which
// sg-remat has not run (but to write tags) and that holds no recomputed copies. 0 = there are none, or what is left was
// kept on purpose.
size_t unapplied_recompute_tags(const Job& job);

}  // namespace sg
