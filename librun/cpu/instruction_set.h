// The instruction sets that kernels are written for. Their results are the same to the bit; only the speed differs.
#pragma once

#include <cstdint>

namespace sg::cpu {

enum class Isa : uint8_t { plain, avx2, avx512 };  // avx2: with FMA and F16C; avx512: F, BW, DQ and VL

bool isa_available(Isa isa);  // on this machine
Isa best_isa();

// Products of two bf16 numbers at a time, at twice the rate of multiply-adds. AMD's are; Intel's pairs take as long as two
// multiply-adds, or longer.
bool has_bf16_pairs();

}  // namespace sg::cpu
