#include "librun/random.h"

#include <algorithm>
#include <cmath>

#include "librun/work/random.h"

namespace sg {
namespace {

using work::half_open_uniform;
using work::normal_pair;
using work::open_uniform;
using work::sin_cos_of_turns;
using work::SinCos;

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
