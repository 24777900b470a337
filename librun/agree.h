// Agreement before a run: whether the ranks, each with its own idea of the job, will call the same collectives.
//
// The verifier sees that for the ranks of one file. Here ranks may be processes that read different files, and sizes of
// inputs are numbers by now. Each rank tells a digest a group; only where digests differ, the calls themselves.
#pragma once

#include <string_view>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"
#include "librun/comm.h"

namespace sg {

// Every rank calls it, once, before its first collective, and gets the same answer: an error names both nodes with
// their ranks and source lines. `sizes`: the symbols that have numbers before the run. `settings`: what else must be
// equal on all ranks ("seed 1, steps 10, numerics fast"); one line.
Status agree_on_collectives(Communicator& comm, const Job& job, const SizeValues& sizes, std::string_view settings);

}  // namespace sg
