// What sg-sweep does with its arguments.
#pragma once

#include "tools/cli/cli.h"

namespace sg::sweep {

Result<int> run_sweep(const cli::Args& args);

}  // namespace sg::sweep
