// The plans of a job's programs. They may differ, as the stages of a pipeline do: a module may be held by some ranks
// only. Where a collective runs in chunks, all ranks of its group must chunk it alike; else the step would hang, or add
// up other rows. Internal to sg-chunk.
#pragma once

#include <vector>

#include "libgraph/job.h"
#include "libpasses/chunk/chunk_plan.h"

namespace sg {

// One plan for each program; empty (without regions) where no module has a name of the pattern, which is an Error if
// it holds of all programs. `refused` is that of plan_chunks; regions whose collectives other ranks would not chunk
// alike are refused as well, in all programs.
Result<std::vector<ChunkPlan>> plan_chunks_of_ranks(const Job& job, const ChunkOptions& options,
                                                    std::vector<Error>* refused);

}  // namespace sg
