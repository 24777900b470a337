#include "librun/random.h"

#include <algorithm>
#include <cmath>

namespace sg {

using work::half_open_uniform;
using work::normal_pair;
using work::open_uniform;
using work::sin_cos_of_turns;
using work::SinCos;
using work::Words;

void fill_words(const RandomKey& key, uint64_t first, std::span<uint32_t> out) {
  size_t j = 0;
  for (; j < out.size() && (first + j) % 4 != 0; ++j) out[j] = key.word(first + j);
  for (; j + 4 <= out.size(); j += 4) {
    const Words b = key.block((first + j) / 4);
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
      const Words b = key.block((first + j) / 2 + i);
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

double uniform(const RandomKey& key, uint64_t i, int digits) { return key.uniform(i, digits); }

double normal(const RandomKey& key, uint64_t i) { return key.normal(i); }

UnitPoint unit_point(const RandomKey& key, uint64_t i) {
  const SinCos direction = sin_cos_of_turns(uniform(key, i, 53));
  return {direction.cos, direction.sin};
}

bool bernoulli(const RandomKey& key, uint64_t i, double p) { return key.uniform(i, 32) < p; }

uint64_t uniform_below(const RandomKey& key, uint64_t i, uint64_t count) { return key.below(i, count); }

}  // namespace sg
