// What is valid UTF-8: shortest form, no surrogates, up to U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace sg {

bool is_utf8(std::string_view s);

// Bytes of the character that begins `s`; 0 where no valid one does.
size_t utf8_length(std::string_view s);

}  // namespace sg
