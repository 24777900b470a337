// sg-remat --budget and --peak: chooses what to recompute so that the planned peak of a program meets the request.
// Internal to sg-remat.
//
// Budget    1 = nothing is recomputed; 0 = the lowest peak found; values in between interpolate linearly between the
//           planned peaks of 0 and 1.
// Peak      in bytes, as planned (sg-run --plan). If no decision found reaches it, the lowest peak found is used, and
//           `missed` is the error, with the lower bound and its composition.
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
  int64_t kept_bytes = 0;     // planned peak with nothing recomputed
  int64_t planned_bytes = 0;  // planned peak with the decision applied
  std::optional<Error> missed;
};

struct TargetQuestion {
  const Job& job;
  size_t which = 0;                                 // program of the job
  const SizeValues& sizes;                          // of that program
  RematModel* model;                                // of its main graph, for these sizes
  const std::vector<uint8_t>&allowed, &crossing;    // by position: RematSearch
  const std::vector<std::vector<uint8_t>>& starts;  // by position, too
  RematTarget target;
  bool by_tags_alone = false;
  size_t threads = 1;
};

TargetChoice choose_for(const TargetQuestion& question);

// The arena of that program under the decision, by the memory plan instead of the model.
int64_t planned_with(const TargetQuestion& question, const RematDecision& decision);

}  // namespace sg
