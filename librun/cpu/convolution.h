// The shape of a convolution, from its arguments: one to three spatial axes, always stored as three.
#pragma once

#include <array>

#include "librun/kernel.h"

namespace sg::cpu {

// Always three spatial axes; missing ones have size 1.
struct ConvolutionGeometry {
  int64_t batch = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  // per group
  std::array<int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, window{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0},
      dilation{1, 1, 1};
  int64_t window_size() const { return window[0] * window[1] * window[2]; }
  int64_t places() const { return out[0] * out[1] * out[2]; }
  int64_t depth() const { return in_channels * window_size(); }
};

// x: the tensor that windows look at, y: the other one. For a transposed convolution these are output and input.
Result<ConvolutionGeometry> convolution_geometry(const KernelCall& call, const Tensor& x, const Tensor& y,
                                                 const Tensor& weight);

bool is_transposed_convolution(const KernelCall& call);

// [batch, channels, spatial...] with three spatial axes.
struct Image {
  const std::byte* data = nullptr;
  DType dtype = DType::none;
  int64_t batch_step = 0, channel_step = 0;
  std::array<int64_t, 3> step{0, 0, 0};
};

inline Image image_of(const Tensor& t) {
  Image image{t.data, t.dtype, t.step(0), t.step(1), {0, 0, 0}};
  for (int i = 2; i < t.rank; ++i) image.step[static_cast<size_t>(5 - t.rank + i - 2)] = t.step(i);
  return image;
}

// Adds a batch axis to a single image, if the weight has one more axis.
Tensor image_as_batch(const Tensor& t, int rank);

}  // namespace sg::cpu
