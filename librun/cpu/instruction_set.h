// The instruction sets that kernels are compiled for. Results are identical to the bit; only the speed differs.
#pragma once

#include <cstdint>

namespace sg::cpu {

enum class Isa : uint8_t { plain, avx2, avx512 };  // avx2: with FMA and F16C; avx512: F, BW, DQ and VL

bool isa_available(Isa isa);  // on this machine
Isa best_isa();

// Whether the CPU multiplies bf16 pairs at twice the rate of multiply-adds. AMD's do; Intel's take at least as long as
// two multiply-adds.
bool has_bf16_pairs();

}  // namespace sg::cpu
