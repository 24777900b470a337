// Communicators that make another one slower on purpose: a link of a known speed, and chaos for tests.
//
// Link      Each communicator (a group, as one of its ranks sees it) has a link of its own: its collectives follow each
//           other, those of other groups run beside them. A collective begins when its last member has launched it and
//           the one before it is over, and takes `latency + bytes / bandwidth`. It is under way while its rank
//           computes; its wait sleeps for what is left. Bytes are what this rank sends or receives, whichever is more.
// Clocks    Members tell each other when they launched, by the system's clock. Where clocks of hosts differ, a
//           beginning is wrong by no more than the time from this rank's launch to the end of its wait.
// Chaos     Before some launches a rank sleeps, and most waits take longer than they have to: by up to some
//           milliseconds, as a function of seed, group, number of the collective and rank alone. Results stay as they
//           are. What is wrong about memory in flight is found by `launch_collective` (collectives.h), which run
//           options switch on.
// Sleep     Both sleep; neither spins. A failure of the job ends the sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "librun/comm.h"

namespace sg {

struct Link {
  double latency_s = 0;
  double bytes_per_s = 0;  // more than 0
};

// "50us,2GiB/s": a time (us, ms or s) and a size that goes through in a second. An error is of kind `usage`.
Result<Link> parse_link(std::string_view text);

// What the call moves over the link of a rank, of a group of `members`; what stays where it is counts for nothing.
int64_t link_bytes(const CollectiveCall& call, size_t members, uint32_t position);

std::unique_ptr<Communicator> with_link(std::unique_ptr<Communicator> inner, const Link& link);
std::unique_ptr<Communicator> with_chaos(std::unique_ptr<Communicator> inner, uint64_t seed);

}  // namespace sg
