// Random numbers: pure functions of a key and an element's index, so that copies, chunks, threads and backends agree.
//
// Generator  Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011): a keyed
//            bijection of 128-bit counters. No state: any element may be drawn at any time, in any order.
// Key        (seed, step, stream, rank). The seed keys one Philox call over (step, stream, rank); its 128 bits are the
// key
//            and the upper half of the counters that draw. So two keys of one seed never share a counter. `stream` is
//            the node's (meta.h: RandomInfo), 1-based; stream 0 belongs to --init (initialize.h). `rank` is 0 where all
//            ranks draw the same.
// Index      the element's row-major index in the original tensor; a chunk passes the original's, not its own.
// Bits       equal on every machine: nothing but integer arithmetic and correctly rounded +, -, *, /, sqrt.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sg {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u, kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{kMul0} * counter[0], p1 = uint64_t{kMul1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

class RandomKey {
 public:
  RandomKey(uint64_t seed, uint64_t step, uint32_t stream, uint32_t rank);

  // Four words of the stream: numbers 4n to 4n + 3.
  PhiloxCounter block(uint64_t n) const {
    return philox4x32({static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), high_[0], high_[1]}, key_);
  }
  // The key, and the upper half of the counters: for generators on a device.
  void words(uint32_t (&key)[2], uint32_t (&high)[2]) const {
    for (size_t i = 0; i < 2; ++i) key[i] = key_[i], high[i] = high_[i];
  }
  uint32_t word(uint64_t i) const { return block(i / 4)[i % 4]; }
  uint64_t word64(uint64_t i) const {
    PhiloxCounter b = block(i / 2);
    return uint64_t{b[2 * (i % 2)]} << 32 | b[2 * (i % 2) + 1];
  }

 private:
  PhiloxKey key_;
  std::array<uint32_t, 2> high_;
};

// out[j] = key.word(first + j): for long runs of elements, four for the price of one.
void fill_words(const RandomKey& key, uint64_t first, std::span<uint32_t> out);
// out[j] = normal(key, first + j), two for the price of one.
void fill_normal(const RandomKey& key, uint64_t first, std::span<double> out);

// In [0, 1), a multiple of 2^-digits: as fine as a type with that many digits holds below 1 without rounding up to it
// (f32 24, bf16 8, f16 11, f64 53). Up to 32 digits take one word an element, more take two.
inline double uniform_of_word(uint32_t word, int digits) {
  return static_cast<double>(word >> (32 - digits)) / static_cast<double>(uint64_t{1} << digits);
}
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
