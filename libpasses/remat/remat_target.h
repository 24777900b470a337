// sg-remat --budget and --peak: what to recompute so that the planned peak of a program is what was asked for.
// Internal to sg-remat.
//
// Budget    1 = nothing is recomputed; 0 = the lowest peak that was found; in between, the peak that lies so far
//           between those of 0 and 1, as planned.
// Peak      in bytes, as planned (sg-run --plan). Out of reach, when nothing that was found stays below, what is decided
//           is the lowest peak that was found, and `missed` is the error, with the lower bound and what it consists of.
// Cost      RematChooser's work, and a handful of memory plans.
#pragma once

#include "libgraph/job.h"
#include "libpasses/remat/remat.h"
#include "libpasses/remat/remat_choose.h"

namespace sg {

struct TargetChoice {
  RematDecision decision;
  int64_t target_bytes = 0;
  RematBound bound;
  int64_t kept_bytes = 0;     // planned, with nothing recomputed
  int64_t planned_bytes = 0;  // planned, with the decision carried out
  std::optional<Error> missed;
};

struct TargetQuestion {
  const Job& job;
  size_t which = 0;                                 // program of the job
  const SizeValues& sizes;                          // of that program
  RematModel* model;                                // of its main graph, for these sizes
  const std::vector<uint8_t>&allowed, &crossing;    // by position: RematSearch
  const std::vector<std::vector<uint8_t>>& starts;  // of it, too
  RematTarget target;
  bool by_tags_alone = false;
  size_t threads = 1;
};

TargetChoice choose_for(const TargetQuestion& question);

// What the arena of that program would be, by the plan and not by the model.
int64_t planned_with(const TargetQuestion& question, const RematDecision& decision);

}  // namespace sg
