// What yaml-cpp lets pass: a text in quotes that are never closed, where the file ends with a line. It takes all that
// follows for a part of the text, keys and stages included, and says nothing.
#pragma once

#include <cstddef>
#include <string_view>

namespace sg {

// Whether the scalar is such a text. `at`: where it begins by yaml-cpp's mark, so with its tag and anchor, and without
// the byte order mark of `yaml`.
bool has_open_quotes(std::string_view yaml, size_t at);

inline constexpr std::string_view kOpenQuotes = "the quotes that begin here are never closed";

}  // namespace sg
