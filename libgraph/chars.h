// Kinds of characters, as our grammars have them: ASCII, whatever the locale.
#pragma once

namespace sg {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace sg
