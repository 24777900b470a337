// A shape, or a place in a tensor, for people: "[2, 3]".
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace sg {

inline std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace sg
