// Sizes in messages that a user is to type again, as a limit that something just misses.
#pragma once

#include <cstdint>
#include <string>

#include "libgraph/base/human.h"

namespace sg {

inline std::string exact_bytes(int64_t bytes) {  // "1.50 KiB (1536 bytes)"
  const std::string human = human_bytes(static_cast<double>(bytes));
  return bytes < 1024 ? human : human + " (" + std::to_string(bytes) + " bytes)";
}

}  // namespace sg
