// What sg-run does with its options.
#pragma once

#include "tools/cli/cli.h"

namespace sg::cli {

Result<int> run_step(const Args& args);

}  // namespace sg::cli
