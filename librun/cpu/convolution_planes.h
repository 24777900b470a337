// The planes of convolution_axes.h, for a part of the places at a time: what a thread reads tiles of products from.
#pragma once

#include "librun/cpu/convolution_axes.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

// Some of the places of some entries: boxes that lie side by side, the last ones maybe smaller.
struct PlaceBox {
  std::array<int64_t, 3> begin{}, size{};
  int64_t entry = 0, entries = 1;
  int64_t places() const { return size[0] * size[1] * size[2]; }
};

class PlaceBoxes {
 public:
  // Boxes of about `places` places at most, and of as much of `channels` channels' planes as fits a cache.
  PlaceBoxes(const ConvolutionTargets& t, int64_t batch, int64_t channels, int64_t places);
  int64_t count() const { return entry_boxes_ * boxes_[0] * boxes_[1] * boxes_[2]; }
  PlaceBox at(int64_t i) const;
  PlaceBox largest() const { return {{}, size_, 0, entries_}; }

 private:
  std::array<int64_t, 3> places_, size_, boxes_;
  int64_t batch_, entries_, entry_boxes_;
};

// How planes lie: [entry, channel, plane, position 0, 1, 2].
struct PlaneLayout {
  PlaneLayout(const ConvolutionTargets& t, const PlaceBox& box, int64_t channels);

  std::array<int64_t, 3> length;  // of a plane
  int64_t plane, channel, entry;  // elements from one to the next
  std::vector<int64_t> taps;      // where the taps of one channel begin
  int64_t elements;               // of all, with room for a tile that reads on

  int64_t line(int64_t entry_at, int64_t a, int64_t b) const {  // the first place of a line
    return entry_at * entry + (a * length[1] + b) * length[2];
  }
};

// Channels from `channel` on of the box's entries.
template <class T>
void fill_planes(const ConvolutionTargets& t, const PlaceBox& box, const PlaneLayout& layout,
                 const std::array<int64_t, 3>& source, const Image& image, int64_t channel, int64_t channels, T* to);

// The places of a box as panels of a tile's width: where each begins in the planes, and where the sums of the box's
// lines, panel after panel, lie. Panels run on over the ends of lines where fewer of them are needed then.
struct PlacePanels {
  PlacePanels(const PlaceBox& box, const PlaneLayout& layout, int64_t width);
  std::vector<int64_t> begins;
  std::vector<int64_t> lines;  // [entry, place 0, place 1]
};

}  // namespace sg::cpu
