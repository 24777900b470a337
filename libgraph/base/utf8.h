// What is valid UTF-8 (shortest form, no surrogates, up to U+10FFFF), and which characters a reader does not see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sg {

bool is_utf8(std::string_view s);

// Bytes of the character that begins `s`; 0 where no valid one does.
size_t utf8_length(std::string_view s);

// Appends a character by its number; of one beyond U+10FFFF, or of half a surrogate pair, bytes that are not UTF-8.
void append_utf8(uint32_t character, std::string* out);

// The number of the character that begins `s`, if a reader would not see it, or would see what follows in another
// order: controls beyond ASCII, marks of direction, separators of lines, spaces without width. None: any other, or no
// character.
std::optional<uint32_t> hidden_character(std::string_view s);

// Appends "\u202e": how JSON and texts spell a character, here up to U+FFFF.
void append_u_escape(uint32_t character, std::string* out);

}  // namespace sg
