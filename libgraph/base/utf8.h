// What is valid UTF-8: shortest form, no surrogates, up to U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sg {

bool is_utf8(std::string_view s);

// Bytes of the character that begins `s`; 0 where no valid one does.
size_t utf8_length(std::string_view s);

// Appends a character by its number; of one beyond U+10FFFF, or of half a surrogate pair, bytes that are not UTF-8.
void append_utf8(uint32_t character, std::string* out);

}  // namespace sg
