// bf16 and f16 as their 16 bits, to float and back: rounded to nearest, ties to even; a NaN stays one, and the one that
// it was if it came from 16 bits: they may be the bits of something else. By selections and without branches, so that
// loops over them run on vectors. As C++ types: librun/element.h.
#pragma once

#include <cstdint>

#include "librun/work/inline.h"

namespace sg::work {

SG_INLINE uint32_t word(float x) { return __builtin_bit_cast(uint32_t, x); }
SG_INLINE float number(uint32_t u) { return __builtin_bit_cast(float, u); }

SG_INLINE uint16_t to_brain(float x) {
  const uint32_t u = word(x), rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | ((u & 0x7F0000u) == 0 ? 0x40u : 0);
  return static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}
SG_INLINE float from_brain(uint16_t bits) { return number(static_cast<uint32_t>(bits) << 16); }

SG_INLINE uint16_t to_half(float x) {
  const uint32_t u = word(x), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
  const uint32_t digits = (a >> 13) & 0x3FFu, nan = 0x7C00u | (digits == 0 ? 0x200u : digits);
  const uint32_t special = a > 0x7F800000u ? nan : 0x7C00u;    // NaN, or beyond 65536
  const uint32_t tiny = word(number(a) + 0.5f) - 0x3F000000u;  // adding 0.5 lines up the subnormal's last bit
  const uint32_t normal = (a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u)) >> 13;
  const uint32_t out = a >= 0x47800000u ? special : a < 0x38800000u ? tiny : normal;
  return static_cast<uint16_t>(sign | out);
}
// The 15 bits below the sign, moved to float's place and scaled: exact for subnormals, too.
SG_INLINE float from_half(uint16_t bits) {
  const uint32_t a = static_cast<uint32_t>(bits & 0x7FFFu) << 13;
  const uint32_t scaled = word(number(a) * 0x1p112f);
  const uint32_t u = a >= 0x0F800000u ? a | 0x7F800000u : scaled;
  return number(u | static_cast<uint32_t>(bits & 0x8000u) << 16);
}

}  // namespace sg::work
