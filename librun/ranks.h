// Runs ranks as threads: the same function on each, and one result.
#pragma once

#include <functional>
#include <span>

#include "librun/comm/comm.h"

namespace sg {

// Runs fn for every communicator in a thread of its own and returns when all are done. The first rank that fails ends
// the others' waits. Of the ranks that fail by themselves the error of the lowest is returned, so that a job whose
// ranks all fail says the same each time. An exception from fn counts as such a failure: out of memory, or our bug.
// `end` runs in the rank's thread after fn, however that went, and once its failure is known to the others.
Status run_ranks(std::span<const std::unique_ptr<Communicator>> ranks, const std::function<Status(Communicator&)>& fn,
                 const std::function<void(Communicator&)>& end = {});

}  // namespace sg
