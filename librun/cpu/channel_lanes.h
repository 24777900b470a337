// Boxes of an image in channel-last layout: [place, lane], kChannelLanes channels per place.
#pragma once

#include "librun/cpu/convolution.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

inline constexpr int64_t kChannelLanes = 16;

// Places [begin, begin + size) of an entry, and `channels` channels with stride `step`.
struct ChannelBox {
  std::array<int64_t, 3> begin, size;
  int64_t entry, channel, channels, step;
};

// Lines of the box are pitch[1] places apart, planes of two axes pitch[0]. Unused lanes are zeros.
template <class T>
void read_lanes(const TileKernels<T>& kernels, const Image& image, const ChannelBox& box,
                const std::array<int64_t, 3>& pitch, T* to);
// `turned`: memory for as many elements as the box has lanes.
template <class T>
void write_lanes(const TileKernels<T>& kernels, const T* from, const std::array<int64_t, 3>& pitch, const Image& image,
                 const ChannelBox& box, T* turned);

}  // namespace sg::cpu
