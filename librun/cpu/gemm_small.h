// Batches of products of small matrices, for which packing tiles would take longer than multiplying. The sums are the
// chains of multiply-adds of gemm_tile.h, bit by bit.
#pragma once

#include "librun/cpu/gemm.h"

namespace sg::cpu {

// Matrices of up to 16 rows and columns, contiguous or not, of f32 or f64; without addition and scaling.
bool is_small_product(const Gemm& product);

void gemm_small(KernelCall& call, const Gemm& product);  // REQUIRES: is_small_product(product)

}  // namespace sg::cpu
