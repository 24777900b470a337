// The communicator of ranks that are processes and have met without MPI: texts, heartbeats and failures go through rank
// 0, over TCP, regardless of which machines the ranks are on.
//
// Tensors   Not supported: a communicator on top of it (NCCL) moves them. `launch` is an error.
// Sight     Every rank sees the heartbeats of all ranks, up to a second late, from the meeting on.
// Failure   The first error that reaches rank 0 becomes the job's; the rank it came from reports it to the user. The
//           death of a process is noticed by its connection. If rank 0 dies, rank 1 reports immediately and the others
//           later.
// Threads   One of its own for the connections; it never waits for a peer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "librun/comm/comm.h"
#include "librun/meet/place.h"

namespace sg {

struct StarOptions {
  double timeout_s = 600;                            // for all ranks to arrive; 0 = unlimited
  std::function<void(const std::string& line)> say;  // says which ranks are missing, if it takes long
};

// Returns when all ranks of the job have met. Errors: the launcher started another number of ranks, or ranks do not
// arrive.
Result<std::unique_ptr<Communicator>> make_star_communicator(const Job& job, const LaunchEnv& env,
                                                             const meet::MeetingPlace& place,
                                                             const StarOptions& options);

}  // namespace sg
