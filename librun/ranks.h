// Ranks as threads: the same function on each, and one answer.
#pragma once

#include <functional>
#include <span>

#include "librun/comm.h"

namespace sg {

// Runs fn for every communicator in a thread of its own and returns when all are done. The first rank that fails ends
// the others' waits; its error is the answer. What fn throws is such a failure: no memory, or a bug of ours.
Status run_ranks(std::span<const std::unique_ptr<Communicator>> ranks, const std::function<Status(Communicator&)>& fn);

}  // namespace sg
