// What the printer and the parser of the text form must agree on: which words go without quotes, and a few numbers.
// Grammar: docs/text-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libgraph/base/chars.h"

namespace sg::text {

inline constexpr size_t kTypeColumn = 64;  // results, `=`, op and arguments are padded to this width
inline constexpr int kMaxDepth = 200;      // of lists in arguments and types, of JSON
inline constexpr uint32_t kRunLength = 5;  // as many ranks in a row are written `0..4`

// Names, modules, roles, functions: letters, digits, `_` and `.`
constexpr bool is_word_char(char c) { return is_dotted_word(c); }
// Axes: those, `/` and `-`
constexpr bool is_axis_char(char c) { return is_word_char(c) || c == '/' || c == '-'; }
// Devices: word characters and `:`
constexpr bool is_device_char(char c) { return is_word_char(c) || c == ':'; }
// Tools, versions, digests: all of those and `+`
constexpr bool is_tag_char(char c) { return is_axis_char(c) || c == ':' || c == '+'; }

template <bool (*is_char)(char)>
bool is_plain(std::string_view s) {
  if (s.empty() || s == "-") return false;
  for (char c : s)
    if (!is_char(c)) return false;
  return true;
}

// "R", "S(0)", "_S(0, 4)", "P(sum)": a word, then at most one pair of parentheses around words.
bool is_plain_placement(std::string_view s);

// Words that mean something by themselves where an argument stands; a symbol of that name needs `expr(...)`.
bool is_argument_word(std::string_view w);
// Words that begin metadata; after `int`, an expression that begins with one needs parentheses.
bool is_metadata_word(std::string_view w);

// The parser adds ".default" to a bare op name of the form `namespace.name`.
bool gets_default_overload(std::string_view bare_op);

// A JSON string literal: control characters, quotes and backslashes escaped, valid UTF-8 as it is, other bytes `\xNN`.
void append_quoted(std::string_view s, std::string* out);

// Reads one JSON value at the start of `text` and appends it without white space. Returns how many bytes it took;
// 0 = not JSON, and `*bad` is where.
size_t append_json(std::string_view text, std::string* out, size_t* bad);
// Whether `text` is what append_json writes, and can stand in a line as it is.
bool is_compact_json(std::string_view text);

// Shortest digits that read back to the same bits, always recognisable as a float; `inf`, `nan` (all NaNs are one).
void append_float(double v, std::string* out);

}  // namespace sg::text
