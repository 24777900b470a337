// What sg-doctor does with its options.
#pragma once

#include "tools/cli/cli.h"

namespace sg::doctor {

Result<int> run_doctor(const cli::Args& args);

}  // namespace sg::doctor
