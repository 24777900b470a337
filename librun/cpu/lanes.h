// Sums and maxima in interleaved lanes: loops that compilers vectorise, in an order that no instruction set changes.
// To be called from functions marked SG_CLONES only, into which they are inlined.
#pragma once

#include <cstdint>
#include <limits>

#include "librun/cpu/isa.h"

namespace sg::cpu {

inline constexpr int kLanes = 16;
inline constexpr int64_t kBlock = 32 * kLanes;   // lanes are added up after so many elements, which keeps errors small

template <class T>
SG_INLINE T add_lanes(T* lane) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

// The sum of value(i) for i in [0, n).
template <class Value>
SG_INLINE double sum_lanes(int64_t n, const Value& value) {
  double total = 0;
  for (int64_t block = 0; block < n; block += kBlock) {
    double lane[kLanes] = {};
    int64_t end = n - block < kBlock ? n : block + kBlock, i = block;
    for (; i + kLanes <= end; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lane[l] += value(i + l);
    for (int l = 0; i < end; ++i, ++l) lane[l] += value(i);
    total += add_lanes(lane);
  }
  return total;
}

template <class T>
SG_INLINE T max_lanes(const T* x, int64_t n) {
  T lane[kLanes], nan = 0;              // nan: stays 0, or becomes NaN
  for (T& l : lane) l = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  T bad[kLanes] = {};
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
      bad[l] = x[i + l] == x[i + l] ? bad[l] : x[i + l];
    }
  }
  for (; i < n; ++i) {
    lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    bad[0] = x[i] == x[i] ? bad[0] : x[i];
  }
  for (int l = 0; l < kLanes; ++l) {
    lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    nan += bad[l];
  }
  return nan == nan ? lane[0] : nan;
}

}  // namespace sg::cpu
