// The gradient of a convolution's input as a product and sums of its rows: what each place of dY adds to all elements
// that its window sees is computed at once, and added to them.
//
//     R[(entry, place), (channel, tap)] = dY^T[(entry, place), channel] @ W[channel, (channel, tap)]
//     dX[channel, element] = the sum of R[place, (channel, tap)] over the places and taps that see it, in their order
//
// It computes no more than that, where gathering (convolution_gather.cc) multiplies each element by all taps, also by
// those that lie outside of dY there: for windows about as large as the input, nearly all of them.
#pragma once

#include <span>

#include "librun/cpu/convolution_axes.h"

namespace sg::cpu {

// Whether that is less work. Depends on the sizes of one entry only.
bool scatters_input(const ConvolutionGeometry& g, std::span<const ConvolutionTargets> targets);

// REQUIRES: the weight is contiguous
void scatter_input(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight,
                   const Tensor& bias, const Image& x);

}  // namespace sg::cpu
