// Whether the ranks of a job still agree after a pass has moved, merged, copied or created collectives.
//
// The verifier's cross-rank rules compare only kinds and sizes, so two calls of the same kind and size are
// interchangeable to them, and ranks could receive data meant for another call. A pass must therefore also preserve the
// identity of each call: the members of a group launch the calls of the original job, or copies of them, in one order.
// A bucket stands for the calls it merges.
#pragma once

#include <string>

#include "libgraph/job.h"

namespace sg {

// The first group whose members would launch different calls, or the same calls in different orders; none if all agree.
GroupId group_out_of_order(const Job& before, const Job& after);

// What the ranks would disagree on, in words; empty if they agree or all ranks share one program. Clears links to
// forward nodes that no longer exist, as writing the job would. Cost: that of the verifier without its type check.
std::string disagreement(const Job& before, Job* after, size_t threads);

}  // namespace sg
