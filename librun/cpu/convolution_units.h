// Convolutions of bf16 on matrix units (gemm_units.h): the products of convolution_products.h, summed in another order.
//
//   output, input   steps of 32 lines, seen through one tap: tap after tap of the first 32, then of the next. A line is
//                   a channel of the source; of few channels, a channel through one tap of the last axis or axes.
//                   Missing lines count as zero.
//   weight          steps of 32 places, box after box; the places of an entry, or of a box, end with a step that is
//                   filled up with zeros.
//
// Each operand of a step is read from planes, where tiles of adjacent places, or channels, lie as the units read them.
#pragma once

#include "librun/cpu/convolution_gather.h"

namespace sg::cpu {

// Whether the units compute it: a matter of types, channels and the window's size alone, as bits depend on it.
bool gathers_by_units(const KernelCall& call, const GatherSides& sides, int64_t window);
void gather_by_units(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides,
                     const ConvolutionTargets& t);

// The same; with one channel, or a few and a large window, lines would mostly be empty.
bool weighs_by_units(const KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                     const Tensor& out);
void weigh_by_units(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y, const Tensor& out);

// The same places, of which the last `count` axes have a plane for each tap: places of more lines are then contiguous.
ConvolutionTargets with_taps_apart(const ConvolutionTargets& t, int count);

// Strides between the rows of tiles, in elements of `bytes`, at which rows do not compete for the sets of a cache.
constexpr int64_t row_stride(int64_t elements, int64_t bytes) {
  const int64_t lines = (elements * bytes + kCacheLine - 1) / kCacheLine;
  return (lines | 1) * kCacheLine / bytes;
}

}  // namespace sg::cpu
