// Which options and operands a command of sg-recipe takes.
#pragma once

#include "tools/cli/cli.h"

namespace sg::recipe {

// What the command has no use for is a mistake (usage) instead of being ignored.
Status check_options_of(const cli::Args& args, std::string_view command);

}  // namespace sg::recipe
