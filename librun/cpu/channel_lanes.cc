#include "librun/cpu/channel_lanes.h"

#include <algorithm>
#include <utility>

#include "librun/cpu/gemm_block.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

// Calls fn(offset in the image, first place of the lanes, places) for runs of places that are evenly spaced in both:
// lines, or several if they continue each other.
template <class Fn>
void for_runs(const Image& image, const ChannelBox& box, const Three& pitch, const Fn& fn) {
  Three size = box.size;
  for (size_t d : {size_t{1}, size_t{0}}) {
    const bool lies_on = size[2] == pitch[d] && image.step[d] == image.step[2] * size[2];
    if ((d == 1 || size[1] == 1) && (size[d] == 1 || lies_on)) size[2] *= std::exchange(size[d], 1);
  }
  int64_t at = box.entry * image.batch_step + box.channel * image.channel_step;
  for (size_t d = 0; d < 3; ++d) at += box.begin[d] * image.step[d];
  for (int64_t a = 0; a < size[0]; ++a)
    for (int64_t b = 0; b < size[1]; ++b)
      fn(at + a * image.step[0] + b * image.step[1], a * pitch[0] + b * pitch[1], size[2]);
}

}  // namespace

template <class T>
void read_lanes(const TileKernels<T>& kernels, const Image& image, const ChannelBox& box, const Three& pitch, T* to) {
  const MatrixView places{image.data, image.dtype, image.step[2], box.step * image.channel_step};
  for_runs(image, box, pitch, [&](int64_t at, int64_t place, int64_t count) {
    T* lanes = to + place * kChannelLanes;
    MatrixView from = places;
    from.data += at * dtype_bytes(image.dtype);
    pack_block(kernels, from, count, box.channels, lanes, kChannelLanes);
    for (int64_t i = 0; i < count && box.channels < kChannelLanes; ++i)
      std::fill(lanes + i * kChannelLanes + box.channels, lanes + (i + 1) * kChannelLanes, T(0));
  });
}

template <class T>
void write_lanes(const TileKernels<T>& kernels, const T* from, const Three& pitch, const Image& image,
                 const ChannelBox& box, T* turned) {
  const int64_t channel_step = box.step * image.channel_step;
  for_runs(image, box, pitch, [&](int64_t at, int64_t place, int64_t count) {
    const MatrixView lanes{reinterpret_cast<const std::byte*>(from + place * kChannelLanes), kTileType<T>, 1,
                           kChannelLanes};
    MatrixView to{image.data + at * dtype_bytes(image.dtype), image.dtype, channel_step, image.step[2]};
    if (image.step[2] != 1)
      return store_block(from + place * kChannelLanes, kChannelLanes, to.transposed(), count, box.channels);
    if (image.dtype == kTileType<T>)
      return pack_block(kernels, lanes, box.channels, count, reinterpret_cast<T*>(const_cast<std::byte*>(to.data)),
                        channel_step);
    pack_block(kernels, lanes, box.channels, count, turned, count);
    store_block(turned, count, to, box.channels, count);
  });
}

#define SG_INSTANTIATE(T)                                                                                \
  template void read_lanes<T>(const TileKernels<T>&, const Image&, const ChannelBox&, const Three&, T*); \
  template void write_lanes<T>(const TileKernels<T>&, const T*, const Three&, const Image&, const ChannelBox&, T*);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
