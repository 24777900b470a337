// What the keys of pack's search are made of: logarithms and draws, the same on every machine. Internal to pack.
#pragma once

#include <cstdint>

namespace sg {

// 256 times the binary logarithm, straight between powers of two.
inline int64_t scaled_log(int64_t x) {
  int exponent = 63 - __builtin_clzll(static_cast<uint64_t>(x));
  int64_t mantissa = exponent >= 8 ? x >> (exponent - 8) : x << (8 - exponent);
  return exponent * 256 + (mantissa & 255);
}

struct PackRandom {  // splitmix64
  uint64_t state = 0x5EED;
  uint64_t below(uint64_t n) {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % n;
  }
  int64_t around_zero(int64_t width) {
    return static_cast<int64_t>(below(static_cast<uint64_t>(width) + 1)) - width / 2;
  }
};

}  // namespace sg
