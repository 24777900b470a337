// sg-remat --budget and --peak: what to recompute so that the planned peak of a program is what was asked for.
// Internal to sg-remat.
//
// Budget    1 = nothing is recomputed; 0 = the lowest peak that was found; in between, the peak that lies so far between
//           those of 0 and 1, as planned.
// Peak      in bytes, as planned (sg-run --plan): cannot_apply, with the lower bound and what it consists of, when nothing
//           that was found stays below.
// Cost      RematChooser's work, and a handful of memory plans.
#pragma once

#include "libgraph/job.h"
#include "libpasses/remat.h"
#include "libpasses/remat_choose.h"

namespace sg {

struct TargetChoice {
  RematDecision decision;
  int64_t target_bytes = 0;
  RematBound bound;
};

// For program `which` of the job; `model` is of its main graph.
Result<TargetChoice> choose_for(const Job& job, size_t which, RematModel* model, const std::vector<uint8_t>& allowed, const RematTarget& target);

// Bytes of the plan of a program, for the sizes of the capture.
int64_t planned_peak(const Program& program);

SizeValues captured_sizes(const Program& program);

}  // namespace sg
