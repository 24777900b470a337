// Recompute tags that a memory policy has written and that nobody has carried out.
#pragma once

#include <cstddef>

#include "libgraph/job.h"

namespace sg {

bool is_recomputed(Recompute tag);  // prefer_recompute or must_recompute

// Forward nodes of the main graphs that are tagged for recomputation and still kept for the backward, in a job on which
// sg-remat has not run (but to write tags) and that holds no recomputed copies. 0 = there are none, or what is left was
// kept on purpose.
size_t unapplied_recompute_tags(const Job& job);

}  // namespace sg
