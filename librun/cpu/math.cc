#include "librun/work/math.h"

namespace sg::math {
namespace {

// The first 256 bits of 2/pi = 0.(bits).
constexpr uint32_t kTwoOverPi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                   0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};

__extension__ typedef unsigned __int128 Wide128;
__extension__ typedef __int128 Signed128;

// 96 bits of 2/pi from bit `first` on, where bit 0 is the first after the point; bits before it are 0.
Wide128 bits_of_two_over_pi(int first) {
  Wide128 out = 0;
  for (int i = 0; i < 96; ++i) {
    int at = first + i;
    unsigned bit = at < 0 || at >= 256 ? 0 : kTwoOverPi[at / 32] >> (31 - at % 32) & 1;
    out = out << 1 | bit;
  }
  return out;
}

Turn turn_wide(float x) {
  double value = x;
  if (abs(value) <= kTurnLimit) return turn_small(value);
  return turn_any(x);
}

}  // namespace

Turn turn_any(float x) {
  uint32_t u = __builtin_bit_cast(uint32_t, x);
  int exponent = static_cast<int>(u >> 23 & 255) - 150;  // |x| = mantissa * 2^exponent
  if (exponent == 105) return {nan(), 0};
  if (exponent < -24) return {static_cast<double>(x), 0};
  uint32_t mantissa = (u & 0x7FFFFF) | 0x800000;
  // |x| * 2/pi modulo 4: bits of 2/pi with weight 4 or more only add whole turns and are skipped.
  Wide128 product = bits_of_two_over_pi(exponent - 2) * mantissa;
  product &= (Wide128{1} << 96) - 1;  // two bits of quarters, then 94 after the point
  uint64_t quarter = static_cast<uint64_t>((product + (Wide128{1} << 93)) >> 94);
  auto rest = static_cast<Signed128>(product) - static_cast<Signed128>(static_cast<Wide128>(quarter) << 94);
  double r = static_cast<double>(rest) * 0x1p-94 * kHalfPi;
  return (u >> 31) ? Turn{-r, 0 - quarter} : Turn{r, quarter};
}

float sin(float x) { return x == 0 ? x : static_cast<float>(sin_quarter(turn_wide(x))); }

float cos(float x) {
  Turn t = turn_wide(x);
  return static_cast<float>(sin_quarter({t.rest, t.quarter + 1}));
}

float tan(float x) {
  Turn t = turn_wide(x);
  return x == 0 ? x : static_cast<float>(sin_quarter(t) / sin_quarter({t.rest, t.quarter + 1}));
}

}  // namespace sg::math
