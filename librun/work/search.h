// What is where, by element.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

// Row-major places as positions by axis: [count, axes].
struct Unravel {
  static constexpr const char* kName = "work_unravel";
  const int64_t* places;
  int64_t* to;
  int64_t axes, shape[12];
  SG_INLINE void operator()(int64_t i) const {
    int64_t rest = places[i];
    for (int64_t axis = axes - 1; axis >= 0; --axis) {
      to[i * axes + axis] = rest % shape[axis];
      rest /= shape[axis];
    }
  }
};

// Element i goes to its place, or comes from there; `size` bytes each.
struct MoveElements {
  static constexpr const char* kName = "work_move_elements";
  const unsigned char* from;
  unsigned char* to;
  const int64_t* places;
  int64_t size;
  bool gathers;
  SG_INLINE void operator()(int64_t i) const {
    const unsigned char* x = from + (gathers ? places[i] : i) * size;
    unsigned char* y = to + (gathers ? i : places[i]) * size;
    for (int64_t b = 0; b < size; ++b) y[b] = x[b];
  }
};

// Where `value` goes in seq[0..n): before its equals, or after them. NaN goes to the end.
template <class V>
SG_INLINE int64_t insertion_place(V value, const V* seq, const int64_t* sorter, int64_t n, bool right) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const V at = seq[sorter ? sorter[middle] : middle];
    if (right ? at > value : at >= value) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Each value in the sequence of its row; a single sequence serves all values.
template <class V>
struct Search {
  static constexpr const char* kName = V(1) / V(2) != 0 ? "work_search" : "work_search_whole";
  const V *sequence, *values;
  const int64_t* sorter;  // null: the sequence is sorted
  int64_t length, per_row;
  bool right;
  int64_t* to;
  SG_INLINE void operator()(int64_t i) const {
    const int64_t row = i / per_row * length;
    to[i] = insertion_place(values[i], sequence + row, sorter ? sorter + row : nullptr, length, right);
  }
};

// Whether each value is among those in order (NaN last, and equal to none).
template <class V>
struct IsIn {
  static constexpr const char* kName = V(1) / V(2) != 0 ? "work_is_in" : "work_is_in_whole";
  const V *values, *sorted;
  int64_t count;
  bool invert;
  uint8_t* to;
  SG_INLINE void operator()(int64_t i) const {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (sorted[middle] < values[i]) low = middle + 1;
      else high = middle;
    }
    to[i] = (low < count && sorted[low] == values[i]) != invert;
  }
};

// A row of zeros and a 1.
struct OneHot {
  static constexpr const char* kName = "work_one_hot";
  const int64_t* at;
  int64_t* to;
  int64_t classes;
  Report report;
  SG_INLINE void operator()(int64_t i) const {
    for (int64_t c = 0; c < classes; ++c) to[i * classes + c] = 0;
    if (at[i] < 0 || at[i] >= classes) return report.raise(Fault::Kind::index, at[i], classes);
    to[i * classes + at[i]] = 1;
  }
};

}  // namespace sg::work
