// The meeting: how ranks that are processes of one job, on one machine or many, find each other without MPI.
//
// Rank 0 listens; all others call it, and say who they are. A caller whose rank, number of ranks or version does not
// fit is told so and turned away; connections that do not speak this run's protocol are closed. When all ranks are
// there, each learns which machines they run on. From then on rank 0 has a line to every rank, and every rank one to
// rank 0.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "librun/meet/line.h"
#include "librun/meet/place.h"

namespace sg::meet {

struct MeetingOptions {
  uint32_t rank = 0, world = 1;
  double timeout_s = 600;                            // for all ranks to arrive; 0 = unlimited
  std::function<void(const std::string& line)> say;  // says which ranks are missing, if it takes long
};

struct Meeting {
  std::vector<Line> lines;            // rank 0: to rank i + 1, the welcome not yet sent; other ranks: to rank 0
  std::vector<std::string> machines;  // by rank; equal texts mean the same machine
  std::vector<Message> early;         // from rank 0, received after its welcome
};

// Every rank calls it. Errors (rank_failed): a rank does not arrive; (cannot_apply): ranks do not fit together.
Result<Meeting> meet_ranks(const MeetingPlace& place, const MeetingOptions& options);

}  // namespace sg::meet
