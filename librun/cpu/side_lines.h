// Lines along an axis, side by side: some adjacent lines at a time are copied to a thread's memory so that the same
// element of 32 lines forms a vector, whatever axis they run along. For axes that are not the innermost, and for short
// innermost lines, where a loop over a line's own elements would not fill a vector.
//
//     if (auto tiles = LineTiles::along(self, axis); tiles && result.is_contiguous()) {
//       SideLines<float> x(call, *tiles);
//       tiles->each(call, [&](int64_t tile, int thread) {
//         float* lines = x.read(self, tile, thread);        // element i of line l: lines[i * kSideLines + l]
//         ...
//         x.write(result, tile, thread);
//       });
//     }
#pragma once

#include <optional>
#include <type_traits>

#include "librun/cpu/gemm_tile.h"
#include "librun/cpu/lanes.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {

inline constexpr int64_t kSideLines = 32;  // more than compilers unroll, so that they vectorize instead

struct LineTiles {
  int64_t length = 0, inner = 1;  // elements of a line; adjacent lines
  int64_t across = 0, count = 0;  // adjacent tiles; all tiles

  // None if rows_of() is as good: along a long axis that is the innermost or has few elements inside, and for tensors
  // that are not contiguous.
  static std::optional<LineTiles> along(const Tensor& t, int64_t axis);
  int64_t lines(int64_t tile) const {
    return group == 1 ? std::min(kSideLines, side() - tile % across * kSideLines) : runs(tile) * inner;
  }

  // The number of the tile's first line, in the order of the other axes' elements.
  int64_t first_line(int64_t tile) const {
    return group == 1 ? tile / across * side() + tile % across * kSideLines : tile * group * inner;
  }

  template <class Fn>  // fn(tile, thread), on all threads
  void each(KernelCall& call, const Fn& fn) const {
    for_rows(call, count, length * kSideLines, fn);
  }

 private:
  template <class C>
  friend class SideLines;
  int64_t all = 0;    // lines of the tensor
  int64_t group = 1;  // runs of `inner` lines in a tile, if several fit

  int64_t side() const { return inner == 1 ? all : inner; }
  int64_t runs(int64_t tile) const { return std::min(group, all / inner - tile * group); }
  int64_t line_step() const { return inner == 1 ? length : 1; }
  int64_t begin(int64_t tile) const {
    if (group > 1) return tile * group * length * inner;
    return tile / across * length * inner + tile % across * kSideLines * line_step();
  }
};

template <class C>  // float, double
class SideLines {
 public:
  SideLines(KernelCall& call, const LineTiles& tiles);

  C* read(const Tensor& t, int64_t tile, int thread) const;          // any float dtype, contiguous
  void write(const Tensor& result, int64_t tile, int thread) const;  // as in read; the lines of the last read()

 private:
  const LineTiles tiles_;
  const TileKernels<C>& kernels_;
  C *lines_, *turned_;
};

extern template class SideLines<float>;
extern template class SideLines<double>;

// --- sums and maxima of kSideLines lines at once, with the same bits that lanes.h gives for each line as a row ---

// value(i, l): element i of line l; `lines`: how many there are, kSideLines at most.
template <class Value, class Lines = std::integral_constant<int64_t, kSideLines>>
SG_INLINE void sum_side(int64_t n, const Value& value, double* totals, Lines lines = {}) {
  for (int64_t l = 0; l < lines; ++l) totals[l] = 0;
  for (int64_t block = 0; block < n; block += kLaneBlock) {
    double lane[kSumLanes][kSideLines];
    const int64_t count = n - block < kLaneBlock ? n - block : kLaneBlock;
    const int64_t used = count < kSumLanes ? count : kSumLanes;  // the others stay zero, and add nothing
    for (int64_t i = 0; i < used; ++i)
      for (int64_t l = 0; l < lines; ++l) lane[i][l] = 0.0 + value(block + i, l);
    for (int64_t i = used; i < count; ++i)
      for (int64_t l = 0; l < lines; ++l) lane[i % kSumLanes][l] += value(block + i, l);
    for (int64_t width = kSumLanes / 2; width > 0; width /= 2)
      for (int64_t i = 0; i < width && i + width < used; ++i)
        for (int64_t l = 0; l < lines; ++l) lane[i][l] += lane[i + width][l];
    for (int64_t l = 0; l < lines; ++l) totals[l] += lane[0][l];
  }
}

// The largest of each line, or NaN if there is one.
template <class T>
SG_INLINE void max_side(const T* x, int64_t n, T* top) {
  T bad[kSideLines] = {};  // stays 0, or becomes NaN
  for (int64_t l = 0; l < kSideLines; ++l) top[l] = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < n; ++i, x += kSideLines) {
    for (int64_t l = 0; l < kSideLines; ++l) {
      const T value = x[l];
      top[l] = value > top[l] ? value : top[l];
      bad[l] = value == value ? bad[l] : value;
    }
  }
  for (int64_t l = 0; l < kSideLines; ++l) top[l] = bad[l] == bad[l] ? top[l] : bad[l];
}

}  // namespace sg::cpu
