// Words of a line, as response files and stages are written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg::cli {

// Words are separated by white space; '...' keeps everything, "..." everything but \\ and \", and a \\ outside takes
// the next character as it is. A word that begins with # is a comment to the end of its line. `what` is what an error
// speaks of: "the response file".
Result<std::vector<std::string>> split_words(std::string_view text, const std::string& what);

// A shell command about a file: `name` in place of each {}, or behind the command if there is none.
std::string command_about(std::string_view command, std::string_view name);

}  // namespace sg::cli
