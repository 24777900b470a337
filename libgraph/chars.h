// Kinds of characters, as our grammars have them: ASCII, whatever the locale.
#pragma once

#include <string_view>

namespace sg {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Without the spaces at both ends.
constexpr std::string_view trim_spaces(std::string_view s) {
  while (s.starts_with(' ')) s.remove_prefix(1);
  while (s.ends_with(' ')) s.remove_suffix(1);
  return s;
}

}  // namespace sg
