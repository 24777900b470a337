// The communicator of ranks that are processes and have met without MPI: texts, heartbeats and failures go through
// rank 0, over TCP, whichever machines the ranks are on.
//
// Tensors   It moves none: that is the business of what lies on it (NCCL). `launch` is an error.
// Sight     Every rank sees the heartbeats of all ranks, up to a second late, from the meeting on.
// Failure   The first error that reaches rank 0 is the job's; the rank that had it speaks of it. A process that dies
//           is noticed by its connection. When rank 0 dies, rank 1 speaks at once and the others after it.
// Threads   One of its own for the lines; it never waits for a peer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "librun/comm.h"
#include "librun/meet/place.h"

namespace sg {

struct StarOptions {
  double timeout_s = 600;                            // for all ranks to come; 0 = for ever
  std::function<void(const std::string& line)> say;  // who is missing, when it takes long
};

// Returns when all ranks of the job have met. Errors: the launcher started another number of ranks, or they do not
// come.
Result<std::unique_ptr<Communicator>> make_star_communicator(const Job& job, const LaunchEnv& env,
                                                             const meet::MeetingPlace& place,
                                                             const StarOptions& options);

}  // namespace sg
