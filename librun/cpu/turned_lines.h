// Lines along an axis that is not the innermost: some neighbours at a time become rows in a thread's memory and, when
// they are computed, lines again. Nothing else is copied.
//
//     if (auto tiles = LineTiles::along(self, axis); tiles && result.is_contiguous()) {
//       TurnedLines<float> x(call, *tiles);
//       tiles->each(call, [&](int64_t tile, int thread) {
//         float* rows = x.read(self, tile, thread);        tiles->lines(tile) rows, x.step() apart
//         ...
//         x.write(result, tile, thread);
//       });
//     }
#pragma once

#include <optional>

#include "librun/cpu/gemm_block.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {

struct LineTiles {
  int64_t length, inner;     // elements of a line; lines side by side
  int64_t together, across;  // lines of a tile; tiles side by side
  int64_t count;

  // Nothing where rows_of() is as good: along the innermost axis, and for tensors that are not contiguous.
  static std::optional<LineTiles> along(const Tensor& t, int64_t axis);
  int64_t lines(int64_t tile) const { return std::min(together, inner - tile % across * together); }
  int64_t begin(int64_t tile) const { return tile / across * length * inner + tile % across * together; }

  template <class Fn>  // fn(tile, thread), on all threads
  void each(KernelCall& call, const Fn& fn) const {
    for_rows(call, count, length * together, fn);
  }
};

template <class C>  // float, double
class TurnedLines {
 public:
  TurnedLines(KernelCall& call, const LineTiles& tiles);
  int64_t step() const { return tiles_.length + 16; }  // rows do not compete for cache sets

  C* read(const Tensor& t, int64_t tile, int thread) const;          // of any float dtype, contiguous
  void write(const Tensor& result, int64_t tile, int thread) const;  // as read; the rows of the last read()

 private:
  const LineTiles tiles_;
  const TileKernels<C>& kernels_;
  C *rows_, *lines_;
};

extern template class TurnedLines<float>;
extern template class TurnedLines<double>;

}  // namespace sg::cpu
