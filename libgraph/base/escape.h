// Text inside of other languages.
#pragma once

#include <string>
#include <string_view>

namespace sg {

// For the text and the attributes of XML and HTML; control characters, which neither has, become spaces.
std::string escaped_markup(std::string_view text);

// As a word of a shell: quoted where it must be.
std::string shell_word(std::string_view text);

}  // namespace sg
