// Convolutions of one to three dimensions, forward and backward, as products of blocks:
//
//   output      Y[channel, place] = W[channel, (channel, tap)] @ X[(channel, tap), place]
//   input       dX[channel, place] = W^T[channel, (channel, tap)] @ dY[(channel, tap), place]
//   weight      dW^T[(channel, tap), channel] = X[(channel, tap), place] @ dY^T[place, channel]
//
// X and dY are stored as planes (convolution_planes.h), in which the rows of the right-hand sides are contiguous:
// nothing is copied per tap, and an input's gradient needs no scatter, unless most taps lie outside of dY
// (convolution_scatter.h). Chains are shorter than those of gemm(), because
// models of convolutions and batch norms amplify rounding errors, most of which arise here. The order of a sum depends
// only on the convolution's sizes; for Y and dX not on the batch.
//
// Where the CPU multiplies bf16 pairs, products of bf16 use them, with the same bits (gemm_tile.h); where it has matrix
// units, they use those, except where sums keep their order (convolution_units.h).
//
// A transposed convolution is the second of these; its backward is the other two with the roles of X and Y exchanged.
// The weight is contiguous: [groups * out channels, in channels, window...]; a bias may be none.
#pragma once

#include "librun/cpu/convolution.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

template <class P>  // float, double; Bf16Pair: everything but a bias is bf16
void convolve_output(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Tensor& weight,
                     const Tensor& bias, const Image& y);
template <class P>
void convolve_input(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight,
                    const Tensor& bias, const Image& x);
template <class P>
void convolve_weight(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y, const Tensor& out);

// Length of the chains for `count` products: about its square root, which balances the errors of the chains and of
// their sum.
int64_t convolution_chain(int64_t count);

}  // namespace sg::cpu
