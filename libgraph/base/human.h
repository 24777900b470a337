// Numbers for people: three digits that count, and a unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libgraph/base/result.h"

namespace sg {

std::string human_bytes(double bytes);  // "1.50 KiB"
std::string human_flops(double flops);  // "1.50 kflop"
std::string human_count(double count);  // "1.50 k"
// "1.500 ms", of us, ms and s: four digits, as times are read beside others that differ by little.
std::string human_time(double seconds);
// Text out of a file, fit for a line on a terminal: control characters and what is not UTF-8 as \n, \x1b.
std::string one_line(std::string_view text);
// A report of several lines, which may hold such texts: all but line ends and tabs, and the colours of its own if it
// has any.
std::string without_controls(std::string_view text, bool keeps_colors);
// A cell of a table, at its left or right end: as many columns as `width`, and one space more than the text at least.
std::string left_cell(std::string_view text, size_t width);
std::string right_cell(std::string_view text, size_t width);
std::string plural(uint64_t n, std::string_view thing);  // "2 nodes"

// "512MiB", "2GiB", "1.5GB", "1000": bytes. An error is of kind `usage`.
Result<int64_t> parse_bytes(std::string_view text);

}  // namespace sg
