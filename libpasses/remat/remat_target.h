// sg-remat --budget and --peak: chooses what to recompute so that the planned peak of a job, that is, of the rank that
// needs most, meets the request. Internal to sg-remat.
//
// Budget    1 = nothing is recomputed; 0 = the lowest peak found; values in between interpolate linearly between the
//           planned peaks of 0 and 1. Where programs differ, all get the same number of bytes, so the last stage of a
//           pipeline recomputes nothing as long as the first needs more.
// Peak      in bytes, as planned (sg-run --plan). If no decision found reaches it, the lowest peak found is used, and
//           that program is reported as missing it, with the lower bound and its composition.
// Ranks     have to pair their collectives as before (remat_agreement.h). Where programs that decide for themselves
//           would not, they do as one of them: the one that needs most, or else another.
// Lowest    of the job: no policy, each for itself or all alike, is lower, if ranks agree under it.
// Cost      RematChooser's work, and a handful of memory plans, per program; where programs differ, the trials of
//           agreement as well.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "libgraph/job.h"
#include "libpasses/remat/remat.h"
#include "libpasses/remat/remat_agreement.h"
#include "libpasses/remat/remat_part.h"

namespace sg {

struct TargetQuestion {
  const Job& job;
  std::span<const SizeValues> sizes;  // by program
  RematTarget target;
  bool by_tags_alone = false;
  size_t threads = 1;
};

// A program that does not reach the requested peak, and the lowest that it does reach.
struct MissedTarget {
  Error error;
  int64_t least_bytes;
};

struct TargetAnswer {
  std::vector<MissedTarget> missed;
  int64_t lowest_bytes = 0;             // of the job, if it had to be searched
  std::optional<RematParting> parting;  // why something lower than this was not taken
};

// Decides for each of `parts` (by program; model, allowed, crossing and rules are set).
TargetAnswer choose_for_target(const TargetQuestion& question, std::span<RematPart> parts);

}  // namespace sg
