// Sums and norms of tensors whose channels are innermost in memory: positions of adjacent channels, a vector of
// channels at a time. Positions come in runs (the entries of a batch); sums are those of rows.h, over a channel of a
// run. Tensors are contiguous, all of one floating dtype.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

struct ChannelVectors {
  int64_t runs, length, channels;  // [runs, length, channels]
};

// Numbers by channel: that of channel c in run r is data[r * run_step + c].
struct ByChannel {
  const double* data;
  int64_t run_step;  // 0: the same in all runs
};

// sums[r * channels + c]: of x, of (x - center)^2, of grad * (x - center).
void channel_sums(KernelCall& call, const ChannelVectors& v, const Tensor& x, double* sums);
void channel_square_distances(KernelCall& call, const ChannelVectors& v, const Tensor& x, ByChannel center,
                              double* sums);
void channel_centered_dots(KernelCall& call, const ChannelVectors& v, const Tensor& grad, const Tensor& x,
                           ByChannel center, double* sums);

// to = (x - mean) * rstd * scale + shift
struct ChannelNorm {
  ByChannel mean, rstd, scale, shift;
};
void normalize_channels(KernelCall& call, const ChannelVectors& v, const Tensor& x, const ChannelNorm& by,
                        const Tensor& to);

// to = rstd * (grad * scale - shift - (x - mean) * slope)
struct ChannelSlopes {
  ByChannel mean, rstd, scale, shift, slope;
};
void channel_input_gradients(KernelCall& call, const ChannelVectors& v, const Tensor& grad, const Tensor& x,
                             const ChannelSlopes& by, const Tensor& to);

}  // namespace sg::cpu
