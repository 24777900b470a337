// Which options name files: told by the kind of argument that the option's row states.
#pragma once

#include <algorithm>
#include <string_view>

#include "libgraph/sim/machine_file.h"

namespace sg {

// Where a file name begins in the value of an option with this argument: at 0 for FILE and GRAPH, at 0 for a
// MACHINE|FILE value that names a file, after the prefix for `per-module:FILE`. npos = the value names no file.
inline size_t file_in(std::string_view argument, std::string_view value) {
  constexpr size_t kNone = std::string_view::npos;
  for (size_t at = 0; at <= argument.size();) {
    const size_t bar = std::min(argument.find('|', at), argument.size());
    const std::string_view word = argument.substr(at, bar - at);
    if (word == argument && (word == "FILE" || word == "GRAPH")) return 0;
    if (word == "MACHINE") return is_machine_file(value) ? 0 : kNone;
    if (const std::string_view prefix = word.substr(0, word.find(':') + 1); word.ends_with(":FILE"))
      return value.starts_with(prefix) ? prefix.size() : kNone;
    at = bar + 1;
  }
  return kNone;
}

}  // namespace sg
