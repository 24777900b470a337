#include "librun/random.h"

#include <cmath>

namespace sg {
namespace {

// log, sin and cos of our own: the C library's differ in the last bit from version to version and from CPU to CPU.

// Of a normal number. x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh((m - 1) / (m + 1)).
double natural_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * s2;
  return exponent * 0.69314718055994530942 + 2 * s * (1 + series);
}

struct SinCos {
  double sin, cos;
};

// Taylor's series on [0, pi/4]; the terms left out are below 1e-18.
SinCos small_sin_cos(double x) {
  const double x2 = x * x;
  double s = 1, c = 1;
  for (int k = 16; k >= 2; k -= 2) {
    s = 1 - s * x2 / (k * (k + 1));
    c = 1 - c * x2 / (k * (k - 1));
  }
  return {s * x, c};
}

// Of the angle turns * 2 pi, turns in [0, 1): by octant, where the reduction is exact.
SinCos sin_cos_of_turns(double turns) {
  const int octant = static_cast<int>(turns * 8);
  const double part = turns * 8 - octant;
  const bool from_above = octant % 2 != 0;
  SinCos a = small_sin_cos((from_above ? 1 - part : part) * 0.78539816339744830962);
  if (from_above) a.sin = -a.sin;
  switch ((octant + 1) / 2 % 4) {
    case 0: return a;
    case 1: return {a.cos, -a.sin};
    case 2: return {-a.sin, -a.cos};
    default: return {-a.cos, a.sin};
  }
}

uint64_t high_bits(uint32_t high, uint32_t low) { return (uint64_t{high} << 32 | low) >> 11; }

// The values of elements 2n and 2n + 1.
SinCos normal_pair(const PhiloxCounter& b) {
  const double u = static_cast<double>(high_bits(b[0], b[1]) + 1) * 0x1p-53;     // (0, 1]
  const double turns = static_cast<double>(high_bits(b[2], b[3])) * 0x1p-53;     // [0, 1)
  const double radius = std::sqrt(-2 * natural_log(u));
  const SinCos direction = sin_cos_of_turns(turns);
  return {radius * direction.sin, radius * direction.cos};
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
  for (; j + 2 <= out.size(); j += 2) {
    const SinCos pair = normal_pair(key.block((first + j) / 2));
    out[j] = pair.cos;
    out[j + 1] = pair.sin;
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
