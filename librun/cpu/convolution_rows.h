// Places of small planes as rows of a matrix, [place, (channel, tap)]: what each place sees of the source,
// contiguously. Products with it have the same bits as those of convolution_products.h, of which it is the other
// operand. A weight is then packed one panel at a time, as needed, and no place is computed in vain.
#pragma once

#include <algorithm>

#include "librun/cpu/convolution_planes.h"

namespace sg::cpu {

// The source: its size, its image, and the range of channels.
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

  // Number of channels packed at a time, so that reads stay in a cache; and the memory for their planes.
  int64_t channels_together() const { return together_; }
  int64_t planes_size() const { return planes_size_; }

  // Packs the places [first, first + rows) of the box, in its order. Column (channel - source.channel) * taps + tap of
  // row i goes to [block of kSumBlock columns, i, column in it], with rows kPackedRow apart and blocks `block_step`.
  // For tiles a block is an A of that many k, or a B of as many columns.
  void pack(const PlaceBox& box, const PlaceSource& source, int64_t first, int64_t rows, T* planes, T* to,
            int64_t block_step) const {
    for (int64_t c = 0; c < source.channels; c += together_)
      pack_channels(box, source, c, std::min(together_, source.channels - c), first, rows, planes, to, block_step);
  }
  // The part for channels [from, from + count) of the source's, count <= channels_together().
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
