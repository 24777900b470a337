// sg-run --plan: what a run would need, without running.
#pragma once

#include "libgraph/job.h"
#include "tools/cli/cli.h"

namespace sg::cli {

// The plan of every program, for the sizes of the capture, or those that the options give.
Result<int> print_plans(const Args& args, const Job& job);

}  // namespace sg::cli
