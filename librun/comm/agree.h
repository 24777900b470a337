// Agreement before a run: checks that all ranks, each with its own view of the job, will call the same collectives.
//
// The verifier checks this for the ranks of one file. Here ranks may be processes that read different files, and input
// sizes are known. Each rank sends two digests per group, of its members and of the calls; they themselves are sent
// only where digests differ, by one rank for each that differs. Rank 0 compares: the work of all is linear in their
// number.
#pragma once

#include <string_view>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"
#include "librun/comm/comm.h"

namespace sg {

// Every rank calls this once, before its first collective, and gets the same answer: an error names both nodes with
// their ranks and source lines. `sizes`: the symbols known before the run. `settings`: whatever else must be equal on
// all ranks ("seed 1, steps 10, numerics fast"); one line.
Status agree_on_collectives(Communicator& comm, const Job& job, const SizeValues& sizes, std::string_view settings);

}  // namespace sg
