#include "librun/cpu/radix_order.h"

#include <algorithm>
#include <utility>

namespace sg::cpu {
namespace {

template <int kBits>
void sort_by_digits(KeyedIndex* items, KeyedIndex* other, int64_t n) {
  constexpr int kDigits = (32 + kBits - 1) / kBits;
  constexpr uint32_t kSize = uint32_t{1} << kBits, kMask = kSize - 1;
  uint32_t counts[kDigits][kSize] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < kDigits; ++d) ++counts[d][(items[i].key >> (d * kBits)) & kMask];
  KeyedIndex* from = items;
  for (int d = 0; d < kDigits; ++d) {
    const int shift = d * kBits;
    uint32_t* next = counts[d];
    if (next[(from[0].key >> shift) & kMask] == n) continue;  // all keys share the digit
    uint32_t sum = 0;
    for (uint32_t k = 0; k < kSize; ++k) sum += std::exchange(next[k], sum);
    for (int64_t i = 0; i < n; ++i) other[next[(from[i].key >> shift) & kMask]++] = from[i];
    std::swap(from, other);
  }
  if (from != items) std::copy_n(from, n, items);
}

}  // namespace

void radix_sort(KeyedIndex* items, KeyedIndex* other, int64_t n) {
  constexpr int64_t kLong = 1 << 13;  // from here on, fewer passes justify larger counters
  if (n < 2) return;
  if (n < kLong) sort_by_digits<8>(items, other, n);
  else sort_by_digits<11>(items, other, n);
}

}  // namespace sg::cpu
