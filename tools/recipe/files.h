// Files as wholes.
#pragma once

#include <string>
#include <vector>

#include "libgraph/result.h"

namespace sg::recipe {

// The bytes of a file; folders, pipes, devices and what breaks off in the middle are errors (unreadable).
Result<std::string> read_regular_file(const std::string& path);

// What a shell's pattern (`*`, `?`, `[...]`) matches, numbers in the names in their order: rank2 before rank10. A name
// without one, or that is itself a file's, is the only one; empty = there is none.
std::vector<std::string> matching_files(const std::string& pattern);

}  // namespace sg::recipe
