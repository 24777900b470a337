// Bit casts in a job that runs in double (rank_run.h). Viewing a tensor as another element type is a plain view if both
// are stored as recorded; in double a number has different bits, so the view becomes a copy (`sg.copy_bits`), which
// replay.h computes from the numbers rounded to the recorded type.
//
// Left     Integers viewed as integers, and complex numbers viewed as their parts, stay views.
// Refused  Graphs in which a copy behaves differently: its source or the copy is written while the other is used later
//          or is memory of an input.
#pragma once

#include <memory>

#include "libgraph/base/result.h"
#include "libgraph/job.h"

namespace sg {

// The job with its bit casts replaced by copies, all ids unchanged; null if it has none.
Result<std::unique_ptr<Job>> with_copied_bits(const Job& job);

}  // namespace sg
