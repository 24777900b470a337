// Convolutions of one input channel and few output channels a group, of which matrices would be mostly packing: 16
// channels lie side by side, place by place, and are computed at once.
//
// An element of output or input is a chain over the taps that it sees, in the order of the window, from the bias on,
// each product and each sum rounded. An element of a weight's gradient is summed in double, over the places of blocks
// of entries first, which the batch alone cuts.
#pragma once

#include "librun/cpu/convolution.h"

namespace sg::cpu {

// Whether it is one, and its windows are not so large that what each place sees would be much to keep. Strict numerics
// have chains of their own.
bool is_depthwise(const KernelCall& call, const ConvolutionGeometry& g);

// The three products (convolution_products.h). REQUIRES: is_depthwise
template <class T>  // float, double
void depthwise_output(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Tensor& weight,
                      const Tensor& bias, const Image& y);
template <class T>
void depthwise_input(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight,
                     const Tensor& bias, const Image& x);
template <class T>
void depthwise_weight(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                      const Tensor& out);

}  // namespace sg::cpu
