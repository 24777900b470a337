// Files as wholes.
#pragma once

#include <string>
#include <vector>

#include "libgraph/base/result.h"

namespace sg::recipe {

// The bytes of a file; folders, pipes, devices and what breaks off in the middle are errors (unreadable).
Result<std::string> read_regular_file(const std::string& path);

// What a shell's pattern (`*`, `?`, `[...]`) matches, numbers in the names in their order: rank2 before rank10. A name
// without one, or that is itself a file's, is the only one; empty = there is none.
Result<std::vector<std::string>> matching_files(const std::string& pattern);

// The files that an option names: those of all ranks for a rank pattern, and with `{step}` in the name those of each
// step from 0 on, as many as there are. An error names the first file, if there is none.
Result<std::vector<std::string>> files_named(const std::string& name);

}  // namespace sg::recipe
