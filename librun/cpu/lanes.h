// Sums and maxima in interleaved lanes: loops that compilers vectorize, in an order that is the same on all instruction
// sets. Call them only from functions marked SG_CLONES, into which they are inlined.
#pragma once

#include <cstdint>
#include <limits>

#include "librun/work/inline.h"

namespace sg::cpu {

inline constexpr int kSumLanes = 32;  // more than compilers unroll, so that they vectorize instead
inline constexpr int64_t kLaneBlock =
    16 * kSumLanes;  // lanes are added up after so many elements, which keeps errors small

template <class T>
SG_INLINE T add_lanes(T* lane) {
  for (int width = kSumLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

// The sum of value(i) for i in [0, n).
template <class Value>
SG_INLINE double sum_lanes(int64_t n, const Value& value) {
  double total = 0;
  for (int64_t block = 0; block < n; block += kLaneBlock) {
    double lane[kSumLanes] = {};
    int64_t end = n - block < kLaneBlock ? n : block + kLaneBlock, i = block;
    for (; i + kSumLanes <= end; i += kSumLanes)
      for (int l = 0; l < kSumLanes; ++l) lane[l] += value(i + l);
    for (int l = 0; i < end; ++i, ++l) lane[l] += value(i);
    total += add_lanes(lane);
  }
  return total;
}

struct TwoSums {
  double first, second;
};

// Two sums in one pass, each in the order of sum_lanes. add(i, first, second) adds element i's contribution to both.
template <class Add>
SG_INLINE TwoSums sum_two_lanes(int64_t n, const Add& add) {
  TwoSums total{};
  for (int64_t block = 0; block < n; block += kLaneBlock) {
    double a[kSumLanes] = {}, b[kSumLanes] = {};
    int64_t end = n - block < kLaneBlock ? n : block + kLaneBlock, i = block;
    for (; i + kSumLanes <= end; i += kSumLanes)
      for (int l = 0; l < kSumLanes; ++l) add(i + l, a + l, b + l);
    for (int l = 0; i < end; ++i, ++l) add(i, a + l, b + l);
    total.first += add_lanes(a), total.second += add_lanes(b);
  }
  return total;
}

// The largest, or NaN if there is one. More lanes than for sums, because their number does not affect the result.
template <class T>
SG_INLINE T max_lanes(const T* x, int64_t n) {
  constexpr int kLanesOfMax = 2 * kSumLanes;
  T lane[kLanesOfMax], bad[kLanesOfMax] = {}, nan = 0;  // bad: stays 0, or becomes NaN
  for (T& l : lane) l = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + kLanesOfMax <= n; i += kLanesOfMax) {
    for (int l = 0; l < kLanesOfMax; ++l) {
      T value = x[i + l];
      lane[l] = value > lane[l] ? value : lane[l];
      bad[l] = value == value ? bad[l] : value;
    }
  }
  for (; i < n; ++i) {
    lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    bad[0] = x[i] == x[i] ? bad[0] : x[i];
  }
  T top = lane[0];
  for (int l = 0; l < kLanesOfMax; ++l) {
    top = lane[l] > top ? lane[l] : top;
    nan += bad[l];
  }
  return nan == nan ? top : nan;
}

}  // namespace sg::cpu
