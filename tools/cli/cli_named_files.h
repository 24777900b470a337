// Which files the value of an option names, by the kind of argument that the option's row states.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/cli.h"

namespace sg::cli {

// STAGE   words that are machines or plans in files: "overlap --machine m.yaml"
// CMD     words of the command that may be files
// else    file_in()
std::vector<std::string> files_named(const Option& option, std::string_view value);

}  // namespace sg::cli
