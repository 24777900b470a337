// Random numbers by element, for the CPU (librun/random.h) and devices, with the same bits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "librun/work/inline.h"

namespace sg::work {

// A Philox counter, or the four words generated from it.
struct Words {
  uint32_t w[4];
  SG_INLINE uint32_t operator[](size_t i) const { return w[i]; }
  friend bool operator==(const Words&, const Words&) = default;
};

// Philox-4x32-10.
SG_INLINE Words philox(Words c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.w[0], p1 = uint64_t{0xCD9E8D57u} * c.w[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.w[1] ^ key0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.w[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// Our own log, sin and cos: those of the C library differ in the last bit between versions and CPUs. Branch-free, so
// that loops vectorize; without fused operations, so that vectors give the same bits.

// For a normal number in (0, 1]. x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh((m - 1) / (m + 1)).
SG_INLINE double natural_log(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  double m = __builtin_bit_cast(double, (bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);  // [1, 2)
  const bool is_large = m > 1.41421356237309504880;
  m = is_large ? m * 0.5 : m;
  const double exponent = static_cast<double>(static_cast<int32_t>(bits >> 52) - 1023 + is_large);
  const double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 23;
  series = series * z + 1.0 / 21;
  series = series * z + 1.0 / 19;
  series = series * z + 1.0 / 17;
  series = series * z + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  return exponent * 0.69314718055994530942 + 2 * s * (1 + series * z);
}

struct SinCos {
  double sin, cos;
};

// For the angle turns * 2 pi, turns in [0, 1): by octant, where the reduction is exact, then a Taylor series on [0,
// pi/4]; the omitted terms are below 1e-18.
SG_INLINE SinCos sin_cos_of_turns(double turns) {
  const int32_t octant = static_cast<int32_t>(turns * 8);
  const double part = turns * 8 - octant;
  const bool from_above = (octant & 1) != 0;
  const double x = (from_above ? 1 - part : part) * 0.78539816339744830962, z = x * x;
  double s = 1.0 / 355687428096000, c = 1.0 / 20922789888000;  // 1/17!, 1/16!
  s = s * z - 1.0 / 1307674368000, c = c * z - 1.0 / 87178291200;
  s = s * z + 1.0 / 6227020800, c = c * z + 1.0 / 479001600;
  s = s * z - 1.0 / 39916800, c = c * z - 1.0 / 3628800;
  s = s * z + 1.0 / 362880, c = c * z + 1.0 / 40320;
  s = s * z - 1.0 / 5040, c = c * z - 1.0 / 720;
  s = s * z + 1.0 / 120, c = c * z + 1.0 / 24;
  s = s * z - 1.0 / 6, c = c * z - 1.0 / 2;
  s = (s * z + 1) * x, c = c * z + 1;
  s = from_above ? -s : s;
  const int32_t quarter = (octant + 1) / 2 & 3;
  const double across = (quarter & 1) != 0 ? s : c, up = (quarter & 1) != 0 ? c : s;
  return {quarter >= 2 ? -up : up, quarter == 1 || quarter == 2 ? -across : across};
}

// In (0, 1] and [0, 1), from the high 53 bits of two words.
SG_INLINE double open_uniform(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32 | low) >> 11) + 1) * 0x1p-53;
}
SG_INLINE double half_open_uniform(uint32_t high, uint32_t low) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// The normal values of elements 2n and 2n + 1, from the two uniforms of block n.
SG_INLINE SinCos normal_pair(double u, double turns) {
  const double radius = ::sqrt(-2 * natural_log(u));
  const SinCos direction = sin_cos_of_turns(turns);
  return {radius * direction.sin, radius * direction.cos};
}
SG_INLINE SinCos normal_pair(const Words& block) {
  return normal_pair(open_uniform(block[0], block[1]), half_open_uniform(block[2], block[3]));
}

// In [0, 1), a multiple of 2^-digits.
SG_INLINE double uniform_of_word(uint32_t word, int digits) {
  return static_cast<double>(word >> (32 - digits)) / static_cast<double>(uint64_t{1} << digits);
}
SG_INLINE double uniform_of_words(uint32_t high, uint32_t low, int digits) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> (64 - digits)) /
         static_cast<double>(uint64_t{1} << digits);
}

// The parameters of a node's random numbers on a device; the step's number is read when the kernel runs, so that a
// recorded launch draws new numbers in each step.
struct Stream {
  uint64_t seed = 0;
  uint32_t stream = 0, rank = 0;
  const uint64_t* step = nullptr;
};

// The Philox key, and the upper half of the counters (librun/random.h explains their derivation).
struct Key {
  uint32_t key[2], high[2];

  SG_INLINE static Key of(uint64_t seed, uint64_t step, uint32_t stream, uint32_t rank) {
    const Words d = philox({{static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), stream, rank}},
                           static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    return {{d[0], d[1]}, {d[2], d[3]}};
  }
  SG_INLINE static Key of(const Stream& s) { return of(s.seed, *s.step, s.stream, s.rank); }

  // Words 4n to 4n + 3 of the stream.
  SG_INLINE Words block(uint64_t n) const {
    return philox({{static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), high[0], high[1]}}, key[0], key[1]);
  }
  SG_INLINE uint32_t word(uint64_t i) const { return block(i / 4)[i % 4]; }
  SG_INLINE uint64_t word64(uint64_t i) const {
    const Words b = block(i / 2);
    return uint64_t{b[2 * (i % 2)]} << 32 | b[2 * (i % 2) + 1];
  }
  SG_INLINE double uniform(uint64_t i, int digits) const {
    if (digits <= 32) return uniform_of_word(word(i), digits);
    const Words b = block(i / 2);
    return uniform_of_words(b[2 * (i % 2)], b[2 * (i % 2) + 1], digits);
  }
  SG_INLINE double normal(uint64_t i) const {
    const SinCos pair = normal_pair(block(i / 2));
    return i % 2 == 0 ? pair.cos : pair.sin;
  }
  // In [0, count): the high half of the product with 64 random bits.
  SG_INLINE uint64_t below(uint64_t i, uint64_t count) const {
#ifdef __CUDA_ARCH__
    return __umul64hi(word64(i), count);
#else
    __extension__ typedef unsigned __int128 Wide;
    return static_cast<uint64_t>(static_cast<Wide>(word64(i)) * count >> 64);
#endif
  }
};

}  // namespace sg::work
