// Whether the ranks of a job still agree after a pass has moved, merged or made collectives.
#pragma once

#include <string>

#include "libgraph/job.h"

namespace sg {

// What the ranks would not agree on, as the verifier says it; empty when all is well, or one program is all ranks'.
// Forgets links to forward nodes that are gone, as writing the job would. Cost: the verifier's, types left out.
std::string disagreement(Job* job, size_t threads);

}  // namespace sg
