// A version as the CUDA driver counts it, for people: 13020 -> "13.2". For programs without CUDA's headers too.
#pragma once

#include <string>

namespace sg::cuda {

inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace sg::cuda
