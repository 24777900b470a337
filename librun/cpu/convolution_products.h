// Convolutions of one to three dimensions, forward and backward, as products of blocks:
//
//   output      Y[channel, place] = W[channel, (channel, tap)] @ X[(channel, tap), place]
//   input       dX[channel, place] = W^T[channel, (channel, tap)] @ dY[(channel, tap), place]
//   weight      dW^T[(channel, tap), channel] = X[(channel, tap), place] @ dY^T[place, channel]
//
// X and dY lie as planes (convolution_planes.h), where the rows of the right-hand sides are runs: nothing is copied a
// tap at a time, and of an input's gradient nothing is scattered. Sums go by chains that are shorter than those of
// gemm(): models of convolutions and batch norms multiply rounding errors, most of which are made here. What a sum is
// depends on the convolution's sizes alone, of Y and dX not on the batch.
//
// As pairs, products of bf16 have the same bits (gemm_tile.h): where the processor multiplies pairs.
//
// A transposed convolution is the second of these, its backward the other two with the roles of X and Y exchanged.
// The weight is contiguous: [groups * out channels, in channels, window...]; a bias may be none.
#pragma once

#include "librun/cpu/convolution.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

template <class P>  // float, double; Bf16Pair: everything but a bias is of bf16
void convolve_output(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Tensor& weight,
                     const Tensor& bias, const Image& y);
template <class P>
void convolve_input(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight,
                    const Tensor& bias, const Image& x);
template <class P>
void convolve_weight(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y, const Tensor& out);

// How many of `count` products are summed up by themselves: about its root, where a chain is as exact as the chains'
// sum.
int64_t convolution_chain(int64_t count);

}  // namespace sg::cpu
