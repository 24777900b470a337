// Boxes of an image with channels side by side: [place, lane], kChannelLanes channels a place.
#pragma once

#include "librun/cpu/convolution.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

inline constexpr int64_t kChannelLanes = 16;

// Places [begin, begin + size) of an entry, and `channels` channels, `step` from one to the next.
struct ChannelBox {
  std::array<int64_t, 3> begin, size;
  int64_t entry, channel, channels, step;
};

// Lines of the box lie pitch[1] places apart, planes of two axes pitch[0]. Lanes beyond the channels are zeros.
template <class T>
void read_lanes(const TileKernels<T>& kernels, const Image& image, const ChannelBox& box,
                const std::array<int64_t, 3>& pitch, T* to);
// `turned`: memory of as many elements as the box has lanes.
template <class T>
void write_lanes(const TileKernels<T>& kernels, const T* from, const std::array<int64_t, 3>& pitch, const Image& image,
                 const ChannelBox& box, T* turned);

}  // namespace sg::cpu
