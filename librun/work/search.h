// Searching and sorting helpers, element by element.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

// Converts row-major offsets to positions by axis: [count, axes].
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

// Moves element i to its place, or from it; `size` bytes each.
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

// The insertion position of `value` in seq[0..n): before or after equal elements. NaN goes to the end.
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

// Searches each value in its row's sequence; a single sequence serves all values.
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

// Whether each value occurs among the sorted ones (NaN comes last, and equals none).
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

// Whether slice i, of `size` elements, differs from the previous one. `order`: sorts the slices; null if they are
// sorted.
template <class V>
struct BeginsRun {
  static constexpr const char* kName = V(1) / V(2) != 0 ? "work_begins_run" : "work_begins_run_whole";
  const V* from;
  const int64_t* order;
  int64_t size;
  uint8_t* to;
  SG_INLINE void operator()(int64_t i) const {
    bool same = i > 0;
    if (same) {
      const V *x = from + (order ? order[i] : i) * size, *before = from + (order ? order[i - 1] : i - 1) * size;
      for (int64_t k = 0; same && k < size; ++k) same = x[k] == before[k];
    }
    to[i] = !same;
  }
};

// The run that contains each position of an order; `first` has the beginnings of runs.
struct RunOf {
  static constexpr const char* kName = "work_run_of";
  const int64_t *first, *order;
  int64_t runs;
  int64_t* to;
  SG_INLINE void operator()(int64_t i) const {
    to[order ? order[i] : i] = insertion_place(i, first, nullptr, runs, true) - 1;
  }
};

// The length of run i; the last one ends at `count`.
struct RunLength {
  static constexpr const char* kName = "work_run_length";
  const int64_t* first;
  int64_t runs, count;
  int64_t* to;
  SG_INLINE void operator()(int64_t i) const { to[i] = (i + 1 < runs ? first[i + 1] : count) - first[i]; }
};

// How often i occurs among the sorted numbers.
struct CountEqual {
  static constexpr const char* kName = "work_count_equal";
  const int64_t* sorted;
  int64_t count;
  int64_t* to;
  SG_INLINE void operator()(int64_t i) const {
    to[i] = insertion_place(i, sorted, nullptr, count, true) - insertion_place(i, sorted, nullptr, count, false);
  }
};

// The histogram bin of x, -1 if none: bins divide [low, high], and the last one includes its upper edge.
SG_INLINE int64_t bin_of(double x, double low, double high, int64_t bins) {
  if (!(x >= low && x <= high)) return -1;
  const double bin = (x - low) * static_cast<double>(bins) / (high - low);  // NaN if the bounds are huge
  if (bin >= 0 && bin < static_cast<double>(bins)) return static_cast<int64_t>(bin);
  return bin >= 0 ? bins - 1 : 0;
}

// A row of zeros with a single 1.
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
