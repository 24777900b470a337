// Device products for kernels that need several.
#pragma once

#include "libgraph/scalar.h"
#include "librun/cuda/lt.h"

namespace sg::cuda {

// p.out = alpha * p.a @ p.b + beta * add, with three axes each; `add` none = nothing is added. p.alpha and p.beta are
// ignored.
Status multiply_three(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta);

// The bias where cuBLASLt's kernels may read it, a copy if need be. They may read 16 bytes at once: the library is told
// how matrices lie, but of a bias only its address, from which it does not always conclude that (pytorch/pytorch pull
// request 194497).
Tensor aligned_bias(KernelCall& call, const Tensor& bias);

}  // namespace sg::cuda
