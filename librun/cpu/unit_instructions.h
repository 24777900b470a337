// Instructions of matrix units (AMX). Tile registers 0 to 7 are shared by a thread's functions, and configured by
// UnitTiles (gemm_units.h); compilers know nothing of them.
#pragma once

#include <cstdint>

namespace sg::cpu::unit {

template <int kTile>
inline void load(const void* from, int64_t step_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step_bytes), "i"(kTile) : "memory");
}

template <int kTile>
inline void store(void* to, int64_t step_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(step_bytes), "i"(kTile) : "memory");
}

template <int kTile>
inline void clear() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

template <int kC, int kA, int kB>
inline void multiply_add() {  // of bf16
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

template <int kC, int kA, int kB>
inline void multiply_add_f16() {
  asm volatile("tdpfp16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

}  // namespace sg::cpu::unit
