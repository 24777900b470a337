#include "libpasses/layers.h"

#include <algorithm>
#include <charconv>

namespace sg {

int32_t layer_of(std::string_view module) {
  while (!module.empty()) {
    const size_t dot = std::min(module.find('.'), module.size());
    const std::string_view part = module.substr(0, dot);
    int32_t number = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (!part.empty() && error == std::errc() && end == part.data() + part.size() && number >= 0) return number;
    module.remove_prefix(std::min(dot + 1, module.size()));
  }
  return -1;
}

}  // namespace sg
