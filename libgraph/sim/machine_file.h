// Whether the name of a machine is one of a file: what tools ask that need no machine.
#pragma once

#include <string_view>

namespace sg {

// A path, not the name of one that is built in.
inline bool is_machine_file(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".yaml") || name.ends_with(".yml");
}

}  // namespace sg
