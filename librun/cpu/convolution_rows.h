// Places of small planes as rows of a matrix, [place, (channel, tap)]: what each place sees of the source,
// contiguously. Products with it have the same bits as those of convolution_products.h, of which it is the other
// operand. A weight is then packed one panel at a time, as needed, and no place is computed in vain.
#pragma once

#include <algorithm>

#include "librun/cpu/convolution_planes.h"

namespace sg::cpu {

// Places [first, first + count) of a box, in its order.
struct PlaceRange {
  const PlaceBox& box;
  int64_t first, count;
};

// Where packed rows go: [block of kSumBlock columns, row, column in it], with rows kPackedRow apart. For tiles a block
// is an A of that many k, or a B of as many columns.
template <class T>
struct PackedPlaces {
  T* to;
  int64_t block_step;
};

template <class T>
class PlaceRows {
 public:
  // For places of boxes within `largest`.
  PlaceRows(const ConvolutionTargets& t, const PlaceBox& largest);

  // Number of channels packed at a time, so that reads stay in a cache; and the memory for their planes.
  int64_t channels_together() const { return together_; }
  int64_t planes_size() const { return planes_size_; }

  // Packs places as rows, one after the other: column (channel - source.channel) * taps + tap.
  void pack(const PlaceRange& places, const PlaceSource& source, T* planes, PackedPlaces<T> to) const {
    for (int64_t c = 0; c < source.channels; c += together_)
      pack_channels(places, source, c, std::min(together_, source.channels - c), planes, to);
  }
  // The part for channels [from, from + count) of the source's, count <= channels_together().
  void pack_channels(const PlaceRange& places, const PlaceSource& source, int64_t from, int64_t count, T* planes,
                     PackedPlaces<T> to) const;

 private:
  const ConvolutionTargets& t_;
  const TileKernels<T>& kernels_;
  const int64_t taps_;
  int64_t together_, planes_size_;
};

extern template class PlaceRows<float>;
extern template class PlaceRows<double>;

}  // namespace sg::cpu
