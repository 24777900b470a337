// Convolutions with one input channel and few output channels per group, for which matrix products would mostly pack:
// 16 channels are stored together, place by place, and computed at once.
//
// Each element of an output or input is a chain over the taps it sees, in window order, starting with the bias, with
// each product and each sum rounded. An element of a weight's gradient is summed in double, first over the places of
// blocks of entries, which depend only on the batch.
#pragma once

#include "librun/cpu/convolution.h"

namespace sg::cpu {

// Whether it is such a convolution, with windows small enough to store what each place sees. Strict numerics use other
// chains.
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
