// Windows of planes as columns, and sums over overlapping windows.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

// By height and width.
struct Columns {
  int64_t kernel[2], dilation[2], padding[2], stride[2], in[2], out[2];

  SG_INLINE int64_t window() const { return kernel[0] * kernel[1]; }
  SG_INLINE int64_t positions() const { return out[0] * out[1]; }
  SG_INLINE int64_t plane() const { return in[0] * in[1]; }

  // The offset in the plane of window position k (row-major) for column `at`; -1 in the padding.
  SG_INLINE int64_t place(int64_t k, int64_t at) const {
    const int64_t row = at / out[1] * stride[0] - padding[0] + k / kernel[1] * dilation[0];
    const int64_t column = at % out[1] * stride[1] - padding[1] + k % kernel[1] * dilation[1];
    return row >= 0 && row < in[0] && column >= 0 && column < in[1] ? row * in[1] + column : -1;
  }
  // The window along axis k whose position `i` is at `at`; -1 if there is none.
  SG_INLINE int64_t window_at(int k, int64_t at, int64_t i) const {
    const int64_t start = at + padding[k] - i * dilation[k];
    if (stride[k] == 1) return start < out[k] ? start : -1;
    return start >= 0 && start % stride[k] == 0 && start / stride[k] < out[k] ? start / stride[k] : -1;
  }
};

struct Bytes16 {
  uint64_t low, high;
};

// Rows of [planes * window, positions]. T has the size of an element.
template <class T>
struct GatherColumns {
  static constexpr const char* kName = sizeof(T) == 1   ? "work_gather_columns_1"
                                       : sizeof(T) == 2 ? "work_gather_columns_2"
                                       : sizeof(T) == 4 ? "work_gather_columns_4"
                                       : sizeof(T) == 8 ? "work_gather_columns_8"
                                                        : "work_gather_columns_16";
  Columns c;
  const T* from;
  T* to;
  SG_INLINE void at(int64_t row, int64_t i) const {
    const int64_t place = c.place(row % c.window(), i);
    to[row * c.positions() + i] = place < 0 ? T{} : from[row / c.window() * c.plane() + place];
  }
  SG_INLINE void operator()(int64_t i) const { at(i / c.positions(), i % c.positions()); }
};

// Rows of planes: each element is the sum of its columns, in the order of window positions. `parts`: 2 for complex
// numbers.
template <class T>
struct AddColumns {
  static constexpr const char* kName = T(1) / T(2) != 0 ? "work_add_columns" : "work_add_columns_whole";
  Columns c;
  int64_t parts;
  const T* from;
  T* to;
  SG_INLINE void at(int64_t row, int64_t i) const {  // of [planes * height, width * parts]
    const int64_t plane = row / c.in[0], column = i / parts, run = c.positions() * parts;
    const T* columns = from + plane * c.window() * run + i % parts;
    T sum = 0;
    for (int64_t r = 0; r < c.kernel[0]; ++r) {
      const int64_t high = c.window_at(0, row % c.in[0], r);
      for (int64_t k = 0; high >= 0 && k < c.kernel[1]; ++k)
        if (const int64_t wide = c.window_at(1, column, k); wide >= 0)
          sum += columns[(r * c.kernel[1] + k) * run + (high * c.out[1] + wide) * parts];
    }
    to[row * c.in[1] * parts + i] = sum;
  }
  SG_INLINE void operator()(int64_t i) const { at(i / (c.in[1] * parts), i % (c.in[1] * parts)); }
};

// Element i of [outer, length, inner]: the sum over the windows [outer, windows, inner, size] that contain it.
struct AddWindows {
  static constexpr const char* kName = "work_add_windows";
  int64_t length, inner, windows, size, step, parts;
  const double* from;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const int64_t element = i / parts, in = element % inner, at = element / inner % length;
    const int64_t outer = element / inner / length;
    int64_t w = at < size ? 0 : (at - size) / step + 1;  // the first window that contains it
    double sum = 0;
    for (; w < windows && w * step <= at; ++w)
      sum += from[(((outer * windows + w) * inner + in) * size + at - w * step) * parts + i % parts];
    to[i] = sum;
  }
};

}  // namespace sg::work
