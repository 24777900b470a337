// Arithmetic on sizes and Python numbers, which the host computes between kernels.
#pragma once

#include "librun/kernel.h"

namespace sg {

// The result of a `python.*` or size op; integers are exact and overflow is checked, division rounds as in Python.
Result<Scalar> run_host_op(const KernelCall& call);

}  // namespace sg
