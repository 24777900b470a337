#include "libgraph/base/human.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "libgraph/base/size_units.h"
#include "libgraph/base/utf8.h"

namespace sg {
namespace {

std::string scaled(double value, double base, const char* const* units) {
  int unit = 0;
  while (value >= base * 0.9995 && unit < 6) value /= base, ++unit;
  char text[48];
  int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, units[unit]);
  return text;
}

}  // namespace

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string human_flops(double flops) {
  static constexpr const char* kUnits[] = {"flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop", "Eflop"};
  return scaled(flops, 1000, kUnits);
}

std::string human_count(double count) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  std::string out = scaled(count, 1000, kUnits);
  if (out.back() == ' ') out.pop_back();
  return out;
}

std::string human_time(double seconds) {
  double value = seconds * 1e6;
  const char* unit = "us";
  if (std::abs(value) >= 999'950) value *= 1e-6, unit = "s";
  else if (std::abs(value) >= 999.95) value *= 1e-3, unit = "ms";
  const double size = std::abs(value);
  const int digits = size == 0 || size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, unit);
  return text;
}

std::string left_cell(std::string_view text, size_t width) {
  std::string out(text);
  return out.append(text.size() < width ? width - text.size() : 1, ' ');
}

std::string right_cell(std::string_view text, size_t width) {
  std::string out(text.size() < width ? width - text.size() : 1, ' ');
  return out += text;
}

std::string plural(uint64_t n, std::string_view thing) {
  return std::to_string(n) + " " + std::string(thing) + (n == 1 ? "" : "s");
}

Result<int64_t> parse_bytes(std::string_view text) {
  auto wrong = [&] {
    return Error{ErrorKind::usage,
                 "\"" + std::string(text) + "\" is not a size",
                 {},
                 "write bytes, or a number with " + std::string(kSizeUnitNames)};
  };
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return wrong();
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const std::optional<double> factor = unit.empty() ? 1 : bytes_of_unit(unit);
  if (!factor || !(number * *factor < 0x1p62)) return wrong();
  return static_cast<int64_t>(std::llround(number * *factor));
}

namespace {

// The length of the character that `text` begins with; 0: one that is not to be seen, or no UTF-8.
size_t shown_length(std::string_view text) {
  const auto c = static_cast<unsigned char>(text[0]);
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  return hidden_character(text) ? 0 : utf8_length(text);
}

// What `text` begins with and must not reach a terminal. Returns its length.
size_t append_visible(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  if (const auto hidden = hidden_character(text)) {
    append_u_escape(*hidden, out);
    return utf8_length(text);
  }
  const auto c = static_cast<unsigned char>(text[0]);
  if (c == '\n' || c == '\t' || c == '\r') *out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
  else *out += "\\x", *out += kHex[c >> 4], *out += kHex[c & 15];
  return 1;
}

// The length of the change of colour that `text` begins with, as in "\x1b[31m"; 0: it is none.
size_t color_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;", 2);
  return end != text.npos && text[end] == 'm' ? end + 1 : 0;
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = shown_length(text.substr(i));
    if (n == 0) i += append_visible(text.substr(i), &out);
    else out.append(text, i, n), i += n;
  }
  return out;
}

std::string without_controls(std::string_view text, bool keeps_colors) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    size_t n = text[i] == '\n' || text[i] == '\t' ? 1 : shown_length(rest);
    if (n == 0 && keeps_colors) n = color_length(rest);
    if (n == 0) i += append_visible(text.substr(i), &out);
    else out.append(text, i, n), i += n;
  }
  return out;
}

}  // namespace sg
