// Arithmetic on sizes and Python numbers: what the host computes between kernels.
#pragma once

#include "librun/kernel.h"

namespace sg {

// The number that a `python.*` or size op gives for its arguments; integers are exact and checked, division rounds as
// Python's does.
Result<Scalar> run_host_op(const KernelCall& call);

}  // namespace sg
