// Files as wholes.
#pragma once

#include <string>

#include "libgraph/result.h"

namespace sg::recipe {

// The bytes of a file; folders and what breaks off in the middle are errors (unreadable).
Result<std::string> read_file(const std::string& path);

}  // namespace sg::recipe
