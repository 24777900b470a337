// --compare: two graphs of one model, run one after the other on the same inputs.
#pragma once

#include "librun/session.h"

namespace sg {

// Returns the second run's report, with `comparison` by rank, and its outputs compared with the first's (`expected`;
// the tolerance is in `options`). If the first run's outputs are not those of `options.expect`, returns its report:
// there is nothing to compare with. The second run's ranks are threads of this process. REQUIRES: those of run_session,
// for both jobs.
Result<SessionReport> run_compared(const Job& first, std::span<const std::unique_ptr<Communicator>> comms,
                                   const Job& second, const SessionOptions& options);

}  // namespace sg
