// Matrix products of integers, which wrap around, and of complex numbers, summed in double: by definition.
#pragma once

#include "librun/cpu/gemm.h"

namespace sg::cpu {

void gemm_plain(KernelCall& call, const Gemm& product);  // REQUIRES: as gemm()

}  // namespace sg::cpu
