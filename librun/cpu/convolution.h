// What a convolution's arguments say of its shape: one to three spatial axes, always as three.
#pragma once

#include <array>

#include "librun/kernel.h"

namespace sg::cpu {

// std::array<int64_t, 3> spatial axes always; those that the op lacks have size 1.
struct ConvolutionGeometry {
  int64_t batch = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  // of one group
  std::array<int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, window{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0},
      dilation{1, 1, 1};
  int64_t window_size() const { return window[0] * window[1] * window[2]; }
  int64_t places() const { return out[0] * out[1] * out[2]; }
  int64_t depth() const { return in_channels * window_size(); }
};

// x: the tensor on the side that windows look at, y: the other. For a transposed convolution these are output and
// input.
Result<ConvolutionGeometry> convolution_geometry(const KernelCall& call, const Tensor& x, const Tensor& y,
                                                 const Tensor& weight);

bool is_transposed_convolution(const KernelCall& call);

// One image as a batch of it, where the weight has an axis more.
Tensor image_as_batch(const Tensor& t, int rank);

}  // namespace sg::cpu
