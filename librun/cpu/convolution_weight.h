// The two implementations of a weight's gradient without matrix units (convolution_units.h): convolution_weight.cc
// copies lines of the source's planes, convolution_weight_rows.cc treats places as rows. Both compute the same sums:
// over the places of one box after the other, kSumBlock at a time.
#pragma once

#include "librun/cpu/convolution_planes.h"

namespace sg::cpu {

// Whether lines are so short that places should be rows.
template <class T>
bool weighs_by_rows(const ConvolutionGeometry& g, const ConvolutionTargets& t, const PlaceBoxes& boxes);
// REQUIRES: `out` is contiguous and of T.
template <class T>
void weigh_by_rows(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                   const ConvolutionTargets& t, const PlaceBoxes& boxes, const Tensor& out);

}  // namespace sg::cpu
