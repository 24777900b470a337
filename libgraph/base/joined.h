// Parts of a text, with something between them: joined(names, ", ") is "a, b, c", joined(ranks, " ") is "0 1 2".
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sg {

// `text` says what of a part is written, as a function or a member: a number or a text.
template <class Parts, class Text = std::identity>
std::string joined(const Parts& parts, std::string_view between, Text text = {}) {
  std::string out;
  bool is_first = true;
  for (const auto& part : parts) {
    if (!is_first) out += between;
    is_first = false;
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<std::invoke_result_t<Text&, decltype(part)>>>)
      out += std::to_string(std::invoke(text, part));
    else out += std::invoke(text, part);
  }
  return out;
}

// The first parts of a list, `most` of them.
template <class Part>
std::span<const Part> first_of(const std::vector<Part>& parts, size_t most) {
  return {parts.data(), std::min(most, parts.size())};
}

}  // namespace sg
