// Bytes as hexadecimal digits, two a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sg {

inline std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (std::byte b : bytes) {
    const unsigned byte = std::to_integer<unsigned>(b);
    out += kDigits[byte >> 4], out += kDigits[byte & 15];
  }
  return out;
}
inline std::string hex(std::span<const uint8_t> bytes) { return hex(std::as_bytes(bytes)); }

}  // namespace sg
