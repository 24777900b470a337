// Places of small planes as rows of a matrix, [place, (channel, tap)]: what each sees of the source, side by side.
// Products with it have the bits of those of convolution_products.h: it is the other side of them. A weight is packed
// a panel at a time then, as it is needed, and no place is computed for nothing.
#pragma once

#include <vector>

#include "librun/cpu/convolution_planes.h"

namespace sg::cpu {

template <class T>
class PlaceRows {
 public:
  // Room for `rows` places of a box within `largest`, seen in `channels` channels of the source.
  PlaceRows(KernelCall& call, const ConvolutionTargets& t, const PlaceBox& largest, int64_t channels, int64_t rows);

  // The places [first, first + rows) of the box, in its order; of the source the channels from `channel` on. On all
  // threads.
  void fill(const PlaceBox& box, const std::array<int64_t, 3>& source, const Image& image, int64_t channel,
            int64_t first, int64_t rows);

  // Columns [b * kSumBlock, (b + 1) * kSumBlock), rows kPackedRow apart: for tiles an A of that many k, or a B of as
  // many columns, zeros after the last one.
  const T* block(int64_t b) const { return packed_ + b * most_ * kPackedRow; }
  int64_t blocks() const { return (depth_ + kSumBlock - 1) / kSumBlock; }
  int64_t depth() const { return depth_; }

 private:
  // Columns that lie one behind the other in the planes: from `at` on, for `to` of a packed row.
  struct Run {
    int64_t at, to, count;
  };
  struct Runs {
    std::vector<Run> all;
    size_t rounded = 0;  // the first ones, which may write a few elements too many
  };
  Runs runs_of(const PlaneLayout& layout, int64_t channel, int64_t channels) const;

  KernelCall& call_;
  const ConvolutionTargets& t_;
  const int64_t taps_, depth_, most_;
  int64_t channels_, together_;  // in all; of a task
  T* packed_;
  std::vector<T*> planes_;  // of each thread
};

extern template class PlaceRows<float>;
extern template class PlaceRows<double>;

}  // namespace sg::cpu
