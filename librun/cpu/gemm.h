// Matrix products: the entry point of all ops that contract.
//
//     out = alpha * a @ b + beta * self          a [M, K], b [K, N], out and self [M, N], or all with batch axes before
//
// Strides   any, on every operand: transposes, expanded batches and steps are absorbed when blocks are packed.
// Types     a, b and out have one dtype, or out is a wider float. bf16 and f16 are widened when packed, summed in f32,
//           and rounded once, at the end.
// Bits      An element depends on its row of a, its column of b, and the numerics; not on threads, M, N or strides:
//           rows computed in slices equal the rows of the whole. See gemm_tile.h. Fast products of f32 and bf16 use
//           matrix units if the CPU has them and k is large enough; these sum in another order (gemm_units.h), which
//           KernelCall::ordered_sums rules out for bf16. Other fast products of bf16 take two k at a time if the CPU
//           has bf16 pairs, and treat numbers and sums below 2^-126 as zero. Otherwise bits do not depend on the
//           machine.
// Memory    packed blocks of a few MB per thread, regardless of the size of the operands.
#pragma once

#include <span>

#include "librun/cpu/gemm_units.h"
#include "librun/cpu/instruction_set.h"
#include "librun/kernel.h"

namespace sg::cpu {

struct Gemm {
  Tensor out, a, b;
  Tensor self;                                                   // none: beta is 0. May be the same view as `out`
  Scalar alpha = Scalar::integer(1), beta = Scalar::integer(0);  // beta 0: self is not read
  Isa isa = best_isa();                                          // others for tests
  Units units = best_units();                                    // for fast products of f32 and bf16; others for tests
  bool pairs = has_bf16_pairs();                                 // for those of bf16 without units
};

// REQUIRES: out, a, b and self (if given) have the same batch axes, and matching sizes.
void gemm(KernelCall& call, const Gemm& product);

// Several products of different sizes, distributed over the threads together.
void gemm(KernelCall& call, std::span<const Gemm> products);

}  // namespace sg::cpu
