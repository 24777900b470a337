// Random numbers: pure functions of a key and an element's index, so that copies, chunks, threads and backends agree.
//
// Generator  Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011): a keyed
//            bijection of 128-bit counters. No state: any element may be drawn at any time, in any order.
// Key        (seed, step, stream, rank). The seed keys one Philox call over (step, stream, rank); its 128 bits are the
//            key and the upper half of the counters that draw. So two keys of one seed never share a counter. `stream`
//            is the node's (meta.h: RandomInfo), 1-based; stream 0 belongs to --init (initialize.h). `rank` is 0 where
//            all ranks draw the same.
// Index      the element's row-major index in the original tensor; a chunk passes the original's, not its own.
// Bits       equal on every machine: nothing but integer arithmetic and correctly rounded +, -, *, /, sqrt.
#pragma once

#include <cstdint>
#include <span>

#include "librun/work/random.h"

namespace sg {

struct RandomKey : work::Key {
  RandomKey(uint64_t seed, uint64_t step, uint32_t stream, uint32_t rank) : Key(of(seed, step, stream, rank)) {}
  explicit RandomKey(const Key& kept) : Key(kept) {}  // one that was kept
};

// out[j] = key.word(first + j): for long runs of elements, four for the price of one.
void fill_words(const RandomKey& key, uint64_t first, std::span<uint32_t> out);
// out[j] = uniform(key, first + j, digits)
void fill_uniform(const RandomKey& key, uint64_t first, int digits, std::span<double> out);
// out[j] = normal(key, first + j), two for the price of one.
void fill_normal(const RandomKey& key, uint64_t first, std::span<double> out);

// In [0, 1), a multiple of 2^-digits: as fine as a type with that many digits holds below 1 without rounding up to it
// (f32 24, bf16 8, f16 11, f64 53). Up to 32 digits take one word an element, more take two.
double uniform(const RandomKey& key, uint64_t i, int digits = 24);

// Of mean 0 and deviation 1 (Box and Muller's transform of 53-bit uniforms: |value| < 8.6).
double normal(const RandomKey& key, uint64_t i);

// A point on the unit circle, all directions alike.
struct UnitPoint {
  double cos = 1, sin = 0;
};
UnitPoint unit_point(const RandomKey& key, uint64_t i);

// True with probability p: uniform with 32 digits < p. 0 never, 1 (or more) always, NaN never.
bool bernoulli(const RandomKey& key, uint64_t i, double p);

// In [0, count), REQUIRES: count > 0. Uniform up to 2^-64 * count.
uint64_t uniform_below(const RandomKey& key, uint64_t i, uint64_t count);

}  // namespace sg
