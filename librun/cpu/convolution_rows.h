// Places of small planes as rows of a matrix, [place, (channel, tap)]: what each sees of the source, side by side.
// Products with it have the bits of those of convolution_products.h: it is the other side of them. A weight is packed
// a panel at a time then, as it is needed, and no place is computed for nothing.
#pragma once

#include <algorithm>

#include "librun/cpu/convolution_planes.h"

namespace sg::cpu {

// Of the source: its size, its image, and channels of it.
struct PlaceSource {
  const std::array<int64_t, 3>& size;
  const Image& image;
  int64_t channel, channels;
};

template <class T>
class PlaceRows {
 public:
  // For places of boxes within `largest`.
  PlaceRows(const ConvolutionTargets& t, const PlaceBox& largest);

  // Channels that are packed at a time, so that what is read stays in a cache; memory for their planes.
  int64_t channels_together() const { return together_; }
  int64_t planes_size() const { return planes_size_; }

  // Packs the places [first, first + rows) of the box, in its order. Column (channel - source.channel) * taps + tap of
  // row i goes to [block of kSumBlock columns, i, column in it], rows kPackedRow apart and blocks `block_step`. For
  // tiles a block is an A of that many k, or a B of as many columns.
  void pack(const PlaceBox& box, const PlaceSource& source, int64_t first, int64_t rows, T* planes, T* to,
            int64_t block_step) const {
    for (int64_t c = 0; c < source.channels; c += together_)
      pack_channels(box, source, c, std::min(together_, source.channels - c), first, rows, planes, to, block_step);
  }
  // The part of it that channels [from, from + count) of the source's are, count <= channels_together().
  void pack_channels(const PlaceBox& box, const PlaceSource& source, int64_t from, int64_t count, int64_t first,
                     int64_t rows, T* planes, T* to, int64_t block_step) const;

 private:
  const ConvolutionTargets& t_;
  const TileKernels<T>& kernels_;
  const int64_t taps_;
  int64_t together_, planes_size_;
};

extern template class PlaceRows<float>;
extern template class PlaceRows<double>;

}  // namespace sg::cpu
