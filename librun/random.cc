#include "librun/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sg {
namespace {

// log, sin and cos of our own: the C library's differ in the last bit from version to version and from CPU to CPU. Without
// branches, so that loops over them run on vectors; plain sums of products, so that vectors give the same bits.

// Of a number in (0, 1], no subnormal. x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh((m - 1) / (m + 1)).
inline double natural_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);     // [1, 2)
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

// Of the angle turns * 2 pi, turns in [0, 1): by octant, where the reduction is exact, then Taylor's series on [0, pi/4],
// of which the terms left out are below 1e-18.
inline SinCos sin_cos_of_turns(double turns) {
  const int32_t octant = static_cast<int32_t>(turns * 8);
  const double part = turns * 8 - octant;
  const bool from_above = (octant & 1) != 0;
  const double x = (from_above ? 1 - part : part) * 0.78539816339744830962, z = x * x;
  double s = 1.0 / 355687428096000, c = 1.0 / 20922789888000;                               // 1/17!, 1/16!
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

// In (0, 1] and [0, 1), from the 53 high bits of two words.
inline double open_uniform(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32 | low) >> 11) + 1) * 0x1p-53;
}
inline double half_open_uniform(uint32_t high, uint32_t low) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// The values of elements 2n and 2n + 1, from the two uniforms of block n.
inline SinCos normal_pair(double u, double turns) {
  const double radius = std::sqrt(-2 * natural_log(u));
  const SinCos direction = sin_cos_of_turns(turns);
  return {radius * direction.sin, radius * direction.cos};
}

inline SinCos normal_pair(const PhiloxCounter& b) {
  return normal_pair(open_uniform(b[0], b[1]), half_open_uniform(b[2], b[3]));
}

}  // namespace

RandomKey::RandomKey(uint64_t seed, uint64_t step, uint32_t stream, uint32_t rank) {
  const PhiloxCounter derived =
      philox4x32({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), stream, rank},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  key_ = {derived[0], derived[1]};
  high_ = {derived[2], derived[3]};
}

void fill_words(const RandomKey& key, uint64_t first, std::span<uint32_t> out) {
  size_t j = 0;
  for (; j < out.size() && (first + j) % 4 != 0; ++j) out[j] = key.word(first + j);
  for (; j + 4 <= out.size(); j += 4) {
    const PhiloxCounter b = key.block((first + j) / 4);
    for (size_t k = 0; k < 4; ++k) out[j + k] = b[k];
  }
  for (; j < out.size(); ++j) out[j] = key.word(first + j);
}

void fill_normal(const RandomKey& key, uint64_t first, std::span<double> out) {
  size_t j = 0;
  if (!out.empty() && first % 2 != 0) out[j++] = normal(key, first);
  constexpr size_t kPairs = 128;
  double u[kPairs], turns[kPairs];
  while (j + 2 <= out.size()) {
    const size_t pairs = std::min(kPairs, (out.size() - j) / 2);
    for (size_t i = 0; i < pairs; ++i) {
      const PhiloxCounter b = key.block((first + j) / 2 + i);
      u[i] = open_uniform(b[0], b[1]);
      turns[i] = half_open_uniform(b[2], b[3]);
    }
    double* to = out.data() + j;
    for (size_t i = 0; i < pairs; ++i) {
      const SinCos pair = normal_pair(u[i], turns[i]);
      to[2 * i] = pair.cos;
      to[2 * i + 1] = pair.sin;
    }
    j += 2 * pairs;
  }
  if (j < out.size()) out[j] = normal(key, first + j);
}

double uniform(const RandomKey& key, uint64_t i, int digits) {
  if (digits <= 32) return uniform_of_word(key.word(i), digits);
  return static_cast<double>(key.word64(i) >> (64 - digits)) / static_cast<double>(uint64_t{1} << digits);
}

double normal(const RandomKey& key, uint64_t i) {
  const SinCos pair = normal_pair(key.block(i / 2));
  return i % 2 == 0 ? pair.cos : pair.sin;
}

UnitPoint unit_point(const RandomKey& key, uint64_t i) {
  const SinCos direction = sin_cos_of_turns(uniform(key, i, 53));
  return {direction.cos, direction.sin};
}

bool bernoulli(const RandomKey& key, uint64_t i, double p) { return uniform_of_word(key.word(i), 32) < p; }

uint64_t uniform_below(const RandomKey& key, uint64_t i, uint64_t count) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{key.word64(i)} * count >> 64);
}

}  // namespace sg
