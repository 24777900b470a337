// How wide standard output is shown, and whether in colour.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sg::cli {

// COLUMNS, else the width of the terminal; nothing if standard output is neither told nor a terminal, or too narrow.
std::optional<size_t> terminal_columns();

// Whether to colour what goes to this descriptor, by the value of --color; `auto`: on a terminal, unless NO_COLOR is
// set or TERM is `dumb`.
bool shows_color(int descriptor, std::string_view when);

// Breaks lines longer than `columns` at spaces; the rest of a line begins below its first word, or below its second
// column if it has one (two spaces or more behind its first words).
std::string folded(std::string_view text, size_t columns);

}  // namespace sg::cli
