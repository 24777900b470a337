// What sg-view does with its options.
#pragma once

#include "tools/cli/cli.h"

namespace sg::cli {

Result<int> view_operands(const Args& args);

}  // namespace sg::cli
