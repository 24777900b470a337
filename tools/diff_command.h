// What sg-diff does with its options.
#pragma once

#include "tools/cli/cli.h"

namespace sg::cli {

// Reads both operands, compares, writes the report. 0 same, 1 differs.
Result<int> diff_operands(const Args& args);

}  // namespace sg::cli
