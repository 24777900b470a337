// Floats of 8 bits as their bits, to float and back: rounded to nearest, ties to even, as PyTorch converts them; a NaN
// stays one, and the one that it was if it came from 8 bits: they may be the bits of something else. By selections and
// without branches, so that loops over them run on vectors. As C++ types: librun/element.h.
//
//   format      exponent, bias, digits   beyond the largest   zero         NaN
//   e4m3fn      4, 7, 3                  the largest          two signs    two: all bits but the sign's
//   e5m2        5, 15, 2                 infinity             two signs    as halves have them
//   e4m3fnuz    4, 8, 3                  NaN                  one          one: the sign alone
//   e5m2fnuz    5, 16, 2                 NaN                  one          one: the sign alone
//
// Beyond the largest of e4m3fn, 448, stays 448, infinity too, as PyTorch 2.15 has it; older ones made NaN of it.
#pragma once

#include <cstdint>

#include "librun/work/halves.h"
#include "librun/work/inline.h"

namespace sg::work {

enum class Eighth : uint8_t { e4m3fn, e5m2, e4m3fnuz, e5m2fnuz };

constexpr int eighth_digits(Eighth e) { return e == Eighth::e4m3fn || e == Eighth::e4m3fnuz ? 3 : 2; }
constexpr int eighth_bias(Eighth e) {
  return e == Eighth::e4m3fn ? 7 : e == Eighth::e5m2 ? 15 : e == Eighth::e4m3fnuz ? 8 : 16;
}
constexpr bool eighth_has_one_zero(Eighth e) { return e == Eighth::e4m3fnuz || e == Eighth::e5m2fnuz; }
// The bits, but for the sign, of what is beyond the largest number.
constexpr uint32_t eighth_beyond(Eighth e) { return e == Eighth::e4m3fn ? 0x7Eu : e == Eighth::e5m2 ? 0x7Cu : 0x80u; }

// The 7 bits below the sign, moved to float's place and scaled: exact for subnormals, too.
template <Eighth E>
SG_INLINE float from_eighth(uint8_t bits) {
  constexpr uint32_t kScale = static_cast<uint32_t>(127 + 127 - eighth_bias(E)) << 23;  // 2^(127 - bias)
  const uint32_t a = static_cast<uint32_t>(bits & 0x7Fu), sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t scaled = word(number(a << (23 - eighth_digits(E))) * number(kScale));
  if constexpr (eighth_has_one_zero(E)) return number(bits == 0x80u ? 0xFFC00000u : scaled | sign);
  else if constexpr (E == Eighth::e4m3fn) return number((a == 0x7Fu ? 0x7FC00000u : scaled) | sign);
  else return number((a >= 0x7Cu ? a << 21 | 0x7F800000u : scaled) | sign);
}

template <Eighth E>
SG_INLINE uint8_t to_eighth(float x) {
  constexpr int kDrop = 23 - eighth_digits(E);
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - eighth_bias(E)) << 23;
  constexpr uint32_t kLeast = kRebias + 0x00800000u;  // the smallest normal number
  // Adding a power of two whose last digit is the subnormals' last digit lines them up.
  constexpr uint32_t kLine = static_cast<uint32_t>(127 - eighth_bias(E) + kDrop + 1) << 23;
  const uint32_t u = word(x), a = u & 0x7FFFFFFFu, sign = (u >> 24) & 0x80u;
  const uint32_t tiny = word(number(a) + number(kLine)) - kLine;
  const uint32_t normal = (a - kRebias + ((1u << (kDrop - 1)) - 1) + ((a >> kDrop) & 1u)) >> kDrop;
  const uint32_t rounded = a < kLeast ? tiny : normal;
  const uint32_t kept = rounded < eighth_beyond(E) ? rounded : eighth_beyond(E);
  const uint32_t digits = E == Eighth::e5m2 && (a >> 21 & 3u) != 0 ? a >> 21 & 3u : 3u;
  const uint32_t nan = eighth_has_one_zero(E) ? 0x80u : 0x7Cu | digits;
  const uint32_t out = a > 0x7F800000u ? nan : kept;
  if constexpr (eighth_has_one_zero(E)) return static_cast<uint8_t>(out == 0 || out == 0x80u ? out : out | sign);
  else return static_cast<uint8_t>(out | sign);
}

}  // namespace sg::work
