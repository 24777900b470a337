// Parts of an op's name.
#pragma once

#include <string_view>

namespace sg {

// Without namespace and overload: "aten.mm.default" -> "mm".
inline std::string_view base_name(std::string_view op) {
  if (const size_t dot = op.find('.'); dot != std::string_view::npos) op.remove_prefix(dot + 1);
  return op.substr(0, op.find('.'));
}

}  // namespace sg
