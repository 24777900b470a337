// What sg-import does: reads sources, proves or keeps apart their ranks, repairs and infers types, writes graph and
// data.
#pragma once

#include "tools/cli/cli.h"

namespace sg::cli {

Result<int> run_import(const Args& args);

}  // namespace sg::cli
