// Random numbers: pure functions of a key and an element's index, so that copies, chunks, threads and backends agree.
//
// Generator  Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011): a keyed
//            bijection of 128-bit counters. It has no state: elements may be drawn in any order.
// Key        (seed, step, stream, rank). The seed keys one Philox call over (step, stream, rank); its 128 output bits
//            are the key and the upper half of the counters for drawing. So two keys of one seed never share a counter.
//            `stream` is the node's (meta.h: RandomInfo), 1-based; stream 0 belongs to --init (initialize.h). `rank` is
//            0 if all ranks draw the same numbers.
// Index      the element's row-major index in the original tensor; a chunk passes the original's, not its own.
// Bits       equal on every machine: only integer arithmetic and correctly rounded +, -, *, /, sqrt are used.
#pragma once

#include <cstdint>
#include <span>

#include "librun/work/random.h"

namespace sg {

struct RandomKey : work::Key {
  RandomKey(uint64_t seed, uint64_t step, uint32_t stream, uint32_t rank) : Key(of(seed, step, stream, rank)) {}
  explicit RandomKey(const Key& kept) : Key(kept) {}  // a saved key
};

// out[j] = key.word(first + j): efficient for long runs, one block gives four words.
void fill_words(const RandomKey& key, uint64_t first, std::span<uint32_t> out);
// out[j] = uniform(key, first + j, digits)
void fill_uniform(const RandomKey& key, uint64_t first, int digits, std::span<double> out);
// out[j] = normal(key, first + j), computed in pairs.
void fill_normal(const RandomKey& key, uint64_t first, std::span<double> out);

// In [0, 1), a multiple of 2^-digits: as many digits as the type can hold below 1 without rounding up to 1 (f32 24,
// bf16 8, f16 11, f64 53). Up to 32 digits take one word per element, more take two.
double uniform(const RandomKey& key, uint64_t i, int digits = 24);

// Mean 0 and deviation 1 (Box-Muller transform of 53-bit uniforms: |value| < 8.6).
double normal(const RandomKey& key, uint64_t i);

// A point on the unit circle, uniformly distributed.
struct UnitPoint {
  double cos = 1, sin = 0;
};
UnitPoint unit_point(const RandomKey& key, uint64_t i);

// In [0, count), REQUIRES: count > 0. Uniform up to 2^-64 * count.
uint64_t uniform_below(const RandomKey& key, uint64_t i, uint64_t count);

}  // namespace sg
