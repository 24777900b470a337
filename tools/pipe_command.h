// What sg-pipe does with its options.
#pragma once

#include "tools/cli/cli.h"

namespace sg::cli {

Result<int> run_pipe(const Args& args);

// STAGE: a pass and its options in one word. PASS: a name.
void complete_stage(const ValueRequest& request);

}  // namespace sg::cli
