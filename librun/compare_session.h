// --compare: two graphs of one model, run one after the other on the same inputs.
#pragma once

#include "librun/session.h"

namespace sg {

// The report is the second run's, with `comparison` by rank, and its outputs held against the first's (`expected`: the
// tolerance of `options`). The second run's ranks are threads of this process. REQUIRES: as run_session, for both jobs.
Result<SessionReport> run_compared(const Job& first, std::span<const std::unique_ptr<Communicator>> comms,
                                   const Job& second, const SessionOptions& options);

}  // namespace sg
