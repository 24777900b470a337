// What sg-reduce does with its options.
#pragma once

#include "tools/cli/cli.h"

namespace sg::reduce {

Result<int> reduce_operand(const cli::Args& args);

}  // namespace sg::reduce
