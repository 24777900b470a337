// The two ways to a weight's gradient: convolution_weight.cc copies lines of the source's planes, the other file has
// places as rows. Both make the same sums: of the places of one box after the other, kSumBlock at a time.
#pragma once

#include "librun/cpu/convolution_planes.h"

namespace sg::cpu {

// Whether lines are so short that places should be rows.
template <class T>
bool weighs_by_rows(const ConvolutionGeometry& g, const ConvolutionTargets& t, const PlaceBoxes& boxes);
// REQUIRES: `out`, contiguous, is of T.
template <class T>
void weigh_by_rows(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                   const ConvolutionTargets& t, const PlaceBoxes& boxes, const Tensor& out);

}  // namespace sg::cpu
