// Files that are read at once: what people write by hand (recipes, machines, lists of modules), what a cache has kept.
#pragma once

#include <cstddef>
#include <string>

#include "libgraph/base/result.h"

namespace sg {

// The bytes of a file, a pipe or a device. Unreadable: what is missing, a folder, what breaks off in the middle, and
// what has more than `most_bytes`, of which no more is read: /dev/zero has no end.
Result<std::string> read_whole_file(const std::string& path, size_t most_bytes);

}  // namespace sg
