// Bit casts of a job that runs in double (rank_run.h). A tensor seen as another element type is a view where both are
// stored as recorded; in double a number's bits are others, so there is nothing to look at. Such a view becomes a copy
// (`sg.copy_bits`), which replay.h makes of the numbers rounded to the type that was recorded.
//
// Left     Integers seen as integers, and complex numbers as their parts: views as they are.
// Refused  Graphs in which a copy is not the same: what the copy was made of, or the copy, is written, and the other
//          one is used later or is memory of an input.
#pragma once

#include <memory>

#include "libgraph/job.h"
#include "libgraph/result.h"

namespace sg {

// The job with its bit casts made copies, every id the same; null where it has none.
Result<std::unique_ptr<Job>> with_copied_bits(const Job& job);

}  // namespace sg
