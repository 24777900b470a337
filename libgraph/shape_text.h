// A shape, or a place in a tensor, for people: "[2, 3]"; a type: "f32[2, 3]".
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "libgraph/dtype.h"

namespace sg {

inline std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

inline std::string type_text(DType dtype, std::span<const int64_t> shape) {
  return std::string(dtype_name(dtype)) + shape_text(shape);
}

}  // namespace sg
