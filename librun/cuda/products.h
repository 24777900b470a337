// Device products for kernels that need several.
#pragma once

#include "libgraph/scalar.h"
#include "librun/cuda/lt.h"

namespace sg::cuda {

// p.out = alpha * p.a @ p.b + beta * add, with three axes each; `add` none = nothing is added. p.alpha and p.beta are
// ignored.
Status multiply_three(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta);

}  // namespace sg::cuda
