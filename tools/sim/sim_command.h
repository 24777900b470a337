// What sg-sim does with its options.
#pragma once

#include "tools/cli/cli.h"

namespace sg::cli {

Result<int> run_sim(const Args& args);

}  // namespace sg::cli
