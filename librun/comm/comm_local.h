// The local communicator: ranks as threads of one process.
//
// Nothing is sent: a launch posts pointers, and once all members have posted, any member that blocks in a wait reads
// the inputs and writes the outputs of all of them, piece by piece. So a collective can complete while some members
// compute, and a wait only needs every member to have launched.
#pragma once

#include <memory>
#include <vector>

#include "librun/comm/comm.h"

namespace sg {

// One per rank of the job, by rank; each is handed to its rank's thread. A rank whose Communicator is destroyed has
// left: collectives that need it fail.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(const Job& job);

}  // namespace sg
