// Whether the ranks of a job still agree after a pass has moved, merged, copied or made collectives.
//
// The rules across ranks see kinds and sizes. Two calls of one kind and size pass for each other, and ranks would get
// what is meant for another call: so a pass also keeps which call is which. The members of a group launch the calls of
// the job as it was, or copies of them, in one order; buckets count as what they merge.
#pragma once

#include <string>

#include "libgraph/job.h"

namespace sg {

// A group whose members would not launch the same calls in the same order; none: all do.
GroupId group_out_of_order(const Job& before, const Job& after);

// What the ranks would not agree on, in words; empty when all is well, or one program is all ranks'. Forgets links to
// forward nodes that are gone, as writing the job would. Cost: the verifier's, types left out.
std::string disagreement(const Job& before, Job* after, size_t threads);

}  // namespace sg
