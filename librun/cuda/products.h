// Products of the device for kernels that need several.
#pragma once

#include "libgraph/scalar.h"
#include "librun/cuda/lt.h"

namespace sg::cuda {

// p.out = alpha * p.a @ p.b + beta * add, of three axes each; `add` none = nothing is added. What p says of alpha and
// beta is not read.
Status multiply_three(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta);

}  // namespace sg::cuda
