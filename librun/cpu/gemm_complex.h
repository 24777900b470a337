// Products of complex matrices as four real ones: re re - im im and re im + im re, each a sum of the real type in the
// order of gemm.h, with the second added to the first.
#pragma once

#include "librun/cpu/gemm.h"

namespace sg::cpu {

// Whether it supports this product: no addition and no scaling; gemm_plain.h handles the others.
bool is_complex_product(const Gemm& product);

void gemm_complex(KernelCall& call, const Gemm& product);  // REQUIRES: is_complex_product(product)

}  // namespace sg::cpu
