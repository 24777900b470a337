// The commands of sg-recipe.
#pragma once

#include "tools/cli/cli.h"

namespace sg::recipe {

Result<int> run_command(const cli::Args& args);

}  // namespace sg::recipe
