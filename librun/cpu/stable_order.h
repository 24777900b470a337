// A stable radix sort of integers: as many passes as they have digits of 11 bits after subtracting the smallest.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace sg::cpu {

// order[0, n): the positions of the keys in ascending order, equal ones in their original order.
void stable_order(const int64_t* keys, int64_t n, int64_t* order);

// Keys with the same order as the numbers; NaN is above all, and zeros are equal.
inline int64_t order_key(int64_t x) { return x; }
inline int64_t order_key(double x) {
  const auto magnitude = static_cast<int64_t>(std::bit_cast<uint64_t>(x) & ~(uint64_t{1} << 63));
  return x != x ? std::numeric_limits<int64_t>::max() : std::bit_cast<int64_t>(x) < 0 ? -magnitude : magnitude;
}

}  // namespace sg::cpu
