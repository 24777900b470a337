// The meeting: how ranks that are processes of one job, on one machine or many, find each other without MPI.
//
// Rank 0 listens; all others call it, and say who they are. Who does not fit, by its number, by the number of ranks, by
// its version, is told so and turned away; who does not speak like a rank of this run is hung up on. When all are
// there, each learns on which machines they run. From then on rank 0 has a line to each, and each one to rank 0.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "librun/meet/line.h"
#include "librun/meet/place.h"

namespace sg::meet {

struct MeetingOptions {
  uint32_t rank = 0, world = 1;
  double timeout_s = 600;                            // for all to come; 0 = for ever
  std::function<void(const std::string& line)> say;  // who is missing, when it takes long
};

struct Meeting {
  std::vector<Line> lines;            // of rank 0: to rank i + 1, the welcome not yet sent; of the others: to rank 0
  std::vector<std::string> machines;  // by rank; equal texts are one machine
  std::vector<Message> early;         // from rank 0, behind its welcome
};

// Every rank calls it. Errors (rank_failed): somebody does not come; (cannot_apply): ranks that do not fit together.
Result<Meeting> meet_ranks(const MeetingPlace& place, const MeetingOptions& options);

}  // namespace sg::meet
