#include "libgraph/base/utf8.h"

#include <simdjson.h>

namespace sg {

size_t utf8_length(std::string_view s) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  auto continues = [&](size_t n) {
    if (s.size() < n) return false;
    for (size_t i = 1; i < n; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    return true;
  };
  if (s.empty()) return 0;
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) < 0xE0) return continues(2) ? 2 : 0;
  if (byte(0) >= 0xE0 && byte(0) < 0xF0) {
    if (!continues(3) || (byte(0) == 0xE0 && byte(1) < 0xA0)) return 0;
    return byte(0) == 0xED && byte(1) >= 0xA0 ? 0 : 3;  // surrogates
  }
  if (byte(0) >= 0xF0 && byte(0) < 0xF5) {
    if (!continues(4) || (byte(0) == 0xF0 && byte(1) < 0x90)) return 0;
    return byte(0) == 0xF4 && byte(1) >= 0x90 ? 0 : 4;
  }
  return 0;
}

std::optional<uint32_t> hidden_character(std::string_view s) {
  const size_t n = utf8_length(s);
  auto bits = [&](size_t i) { return static_cast<unsigned char>(s[i]) & 63U; };
  if (n == 2) {
    const uint32_t c = (static_cast<unsigned char>(s[0]) & 31U) << 6 | bits(1);
    return c < 0xA0 ? std::optional(c) : std::nullopt;
  }
  if (n != 3) return std::nullopt;
  const uint32_t c = (static_cast<unsigned char>(s[0]) & 15U) << 12 | bits(1) << 6 | bits(2);
  const bool is_hidden =
      (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF;
  return is_hidden ? std::optional(c) : std::nullopt;
}

void append_u_escape(uint32_t c, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  *out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) *out += kHex[c >> shift & 15];
}

bool is_utf8(std::string_view s) { return simdjson::validate_utf8(s.data(), s.size()); }

void append_utf8(uint32_t c, std::string* out) {
  auto put = [&](uint32_t byte) { *out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 63));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  put(0xF0 | (c >> 18 & 7)), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
}

}  // namespace sg
