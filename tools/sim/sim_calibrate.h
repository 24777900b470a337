// sg-sim --calibrate: a machine file out of measurements of this machine.
#pragma once

#include <string>

#include "libgraph/sim/machine.h"
#include "tools/cli/cli.h"

namespace sg::cli {

// `base` with what could be measured, and how far the repeats lie apart: YAML with comments. --ranks share the cores.
Result<std::string> calibrate_here(const Args& args, const Machine& base);

}  // namespace sg::cli
