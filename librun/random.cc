#include "librun/random.h"

#include <algorithm>
#include <cmath>

#include "librun/cpu/isa.h"

namespace sg {

using work::normal_pair;
using work::sin_cos_of_turns;
using work::SinCos;
using work::Words;

namespace {

constexpr size_t kBlocks = 128;  // Philox blocks at a time: words and results fit the L1 cache

// Words [4 first, 4 (first + count)) of the stream.
SG_CLONES void fill_blocks(work::Key key, uint64_t first, size_t count, uint32_t* to) {
  for (size_t i = 0; i < count; ++i) {
    const Words b = key.block(first + i);
    for (size_t k = 0; k < 4; ++k) to[4 * i + k] = b[k];
  }
}

SG_CLONES void uniforms_of_words(const uint32_t* words, int digits, size_t count, double* to) {
  for (size_t i = 0; i < count; ++i) to[i] = work::uniform_of_word(words[i], digits);
}

SG_CLONES void uniforms_of_pairs(const uint32_t* words, int digits, size_t count, double* to) {
  for (size_t i = 0; i < count; ++i) to[i] = work::uniform_of_words(words[2 * i], words[2 * i + 1], digits);
}

SG_CLONES void normals_of_blocks(const uint32_t* words, size_t count, double* to) {
  for (size_t i = 0; i < count; ++i) {
    const SinCos pair = normal_pair(Words{{words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]}});
    to[2 * i] = pair.cos;
    to[2 * i + 1] = pair.sin;
  }
}

}  // namespace

void fill_words(const RandomKey& key, uint64_t first, std::span<uint32_t> out) {
  size_t j = 0;
  for (; j < out.size() && (first + j) % 4 != 0; ++j) out[j] = key.word(first + j);
  const size_t blocks = (out.size() - j) / 4;
  fill_blocks(key, (first + j) / 4, blocks, out.data() + j);
  for (j += 4 * blocks; j < out.size(); ++j) out[j] = key.word(first + j);
}

void fill_uniform(const RandomKey& key, uint64_t first, int digits, std::span<double> out) {
  uint32_t words[4 * kBlocks];
  const size_t each = digits <= 32 ? 1 : 2;  // words per number
  for (size_t j = 0, count; j < out.size(); j += count) {
    count = std::min(4 * kBlocks / each, out.size() - j);
    fill_words(key, each * (first + j), {words, each * count});
    each == 1 ? uniforms_of_words(words, digits, count, &out[j]) : uniforms_of_pairs(words, digits, count, &out[j]);
  }
}

void fill_normal(const RandomKey& key, uint64_t first, std::span<double> out) {
  uint32_t words[4 * kBlocks];
  size_t j = 0;
  if (!out.empty() && first % 2 != 0) out[j++] = normal(key, first);
  while (j + 2 <= out.size()) {
    const size_t blocks = std::min(kBlocks, (out.size() - j) / 2);
    fill_blocks(key, (first + j) / 2, blocks, words);
    normals_of_blocks(words, blocks, &out[j]);
    j += 2 * blocks;
  }
  if (j < out.size()) out[j] = normal(key, first + j);
}

double uniform(const RandomKey& key, uint64_t i, int digits) { return key.uniform(i, digits); }

double normal(const RandomKey& key, uint64_t i) { return key.normal(i); }

UnitPoint unit_point(const RandomKey& key, uint64_t i) {
  const SinCos direction = sin_cos_of_turns(uniform(key, i, 53));
  return {direction.cos, direction.sin};
}

uint64_t uniform_below(const RandomKey& key, uint64_t i, uint64_t count) { return key.below(i, count); }

}  // namespace sg
