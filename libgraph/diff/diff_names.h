// Lines of the text form without what nodes are called.
#pragma once

#include <string>
#include <string_view>

namespace sg {

// A line with the names of values, of nodes and of their originals taken out: equal for edits that are the same but for
// what things are called.
std::string without_names(std::string_view line);

}  // namespace sg
