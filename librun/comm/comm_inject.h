// Communicators that slow down another one on purpose: a link of a given speed, and chaos for tests.
//
// Link      Each group has a link of its own on each rank: its collectives run one after another, in parallel with
//           those of other groups. A collective begins when its last member has launched it and the previous one is
//           over, and takes `latency + bytes / bandwidth`. It proceeds while its rank computes; its wait sleeps for the
//           remaining time. Bytes are the larger of what this rank sends and receives.
// Clocks    Members tell each other when they launched, by the system clock. If the clocks of hosts differ, a beginning
//           is wrong by at most the time from this rank's launch to the end of its wait.
// Chaos     A rank sleeps before some launches, and most waits are prolonged, each by up to a few milliseconds: a
//           function of seed, group, number of the collective and rank only. Results do not change. Misuse of memory in
//           flight is found by `launch_collective` (collectives.h), which run options switch on.
// Sleep     Both sleep and never spin. A failure of the job ends the sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "librun/comm/comm.h"

namespace sg {

struct Link {
  double latency_s = 0;
  double bytes_per_s = 0;  // must be greater than 0
};

// "50us,2GiB/s": a time (us, ms or s) and a size per second. An error is of kind `usage`.
Result<Link> parse_link(std::string_view text);

// Bytes that the call moves over one rank's link in a group of `members`; data that stays on the rank does not count.
int64_t link_bytes(const CollectiveCall& call, size_t members, uint32_t position);

std::unique_ptr<Communicator> with_link(std::unique_ptr<Communicator> inner, const Link& link);
std::unique_ptr<Communicator> with_chaos(std::unique_ptr<Communicator> inner, uint64_t seed);

}  // namespace sg
