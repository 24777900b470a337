#include "librun/cpu/instruction_set.h"

#include <cpuid.h>

namespace sg::cpu {
namespace {

// Half-precision conversions: clang's __builtin_cpu_supports does not know them.
bool has_f16c() {
  unsigned a, b, c = 0, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

bool isa_available(Isa isa) {
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::avx512: return avx512;
    case Isa::avx2: return avx2;
    case Isa::plain: return true;
  }
  return false;
}

Isa best_isa() {
  if (isa_available(Isa::avx512)) return Isa::avx512;
  return isa_available(Isa::avx2) ? Isa::avx2 : Isa::plain;
}

bool has_bf16_pairs() {
  static const bool pairs =
      isa_available(Isa::avx512) && __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16");
  return pairs;
}

}  // namespace sg::cpu
