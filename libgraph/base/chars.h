// Kinds of characters, as our grammars have them: ASCII, whatever the locale.
#pragma once

#include <string_view>

namespace sg {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
// What a name begins with: `_` is one.
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool is_word(char c) { return is_letter(c) || is_digit(c); }
constexpr bool is_dotted_word(char c) { return is_word(c) || c == '.'; }
constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Without the spaces at both ends.
constexpr std::string_view trim_spaces(std::string_view s) {
  while (s.starts_with(' ')) s.remove_prefix(1);
  while (s.ends_with(' ')) s.remove_suffix(1);
  return s;
}

}  // namespace sg
