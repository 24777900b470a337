// Block functions: what pointwise programs are made of. A block is a run of up to kBlock elements.
//
// Values lie in registers: memory for kBlock elements of one lane type, complex ones as two planes (real parts, then
// imaginary parts kBlock elements on). A block function reads registers and writes one; `out` may be one of the inputs.
//
// The files of this folder are compiled once for each instruction set, into a namespace each, and give their functions
// to a BlockTable. Nothing in them may be inline with linkage outside its file: the linker would keep one version,
// maybe that of a newer processor. All versions compute the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "libgraph/dtype.h"

namespace sg::cpu {

inline constexpr int64_t kBlock = 512;
inline constexpr int kMaxOperands = 6;

// What a register holds. f32 stands for bf16, f16 and float8 too, i64 for all integers: narrower results are rounded in
// place.
enum class Lane : uint8_t { f32, f64, i64, b8, c64, c128 };
inline constexpr int kLanes = 6;

Lane lane_of(DType dtype);  // REQUIRES: is_held

constexpr int lane_bytes(Lane lane) {
  constexpr int bytes[kLanes] = {4, 8, 8, 1, 8, 16};
  return bytes[static_cast<int>(lane)];
}

// clang-format off
enum class BlockOp : uint8_t {
  // any lane
  copy, where,
  // roundings to a narrower element type, of f32 or i64 registers
  round_bf16, round_f16, round_e4m3fn, round_e5m2, round_e4m3fnuz, round_e5m2fnuz, wrap_i32, wrap_i16, wrap_i8, wrap_u8,
  // arithmetic
  add, sub, mul, div, add_scaled, sub_scaled, neg, abs, sign, reciprocal, div_trunc, div_floor, remainder, fmod,
  maximum, minimum, fmax, fmin, addcmul, addcdiv, lerp, hypot, pow,
  trunc, round, floor, ceil, nan_to_num,
  bit_and, bit_or, bit_xor, bit_not, shift_left, shift_right,
  // tests: results are b8
  eq, ne, lt, le, gt, ge, isnan, isinf, isfinite, signbit, isclose, isclose_nan,
  logical_not, logical_and, logical_or, logical_xor,
  // elementary functions
  exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh,
  acosh, atanh, erf, erfc, erfinv, lgamma, digamma, atan2, xlogy, logit, angle,
  // activations and their gradients
  relu, sigmoid, silu, mish, gelu, gelu_tanh, hardswish, hardsigmoid, log_sigmoid, elu, leaky_relu, softplus,
  silu_backward, gelu_backward, gelu_tanh_backward, tanh_backward, sigmoid_backward, threshold_backward,
  leaky_relu_backward, elu_backward, elu_backward_of_result, hardtanh_backward, hardswish_backward,
  hardsigmoid_backward, softplus_backward,
  // special functions and the rarer activations
  entr, sinc, i0, i0e, i1, i1e, erfcx, ndtri, log_ndtr, polygamma, zeta, igamma, igammac, xlog1py, logaddexp, logaddexp2,
  heaviside, copysign, nextafter, nextafter_bf16, gcd, lcm, hardshrink, softshrink, shrink_backward, threshold,
  log_sigmoid_backward, logit_backward, mish_backward, bessel_j, bessel_y, bessel_k, bessel_k_scaled, spherical_j0, airy,
  polynomial,
  // complex
  conj, complex, polar, sgn,
  count,
};
// clang-format on
inline constexpr size_t kBlockOps = static_cast<size_t>(BlockOp::count);

// `fault` is raised by a division of an integer by zero.
using BlockFn = void (*)(void* out, const void* const* in, int64_t n, bool* fault);
// From n elements of memory, `step` elements apart, to a register, and back; at the register's place for element 0.
using LoadFn = void (*)(void* reg, const void* from, int64_t n, int64_t step);
using StoreFn = void (*)(void* to, const void* reg, int64_t n, int64_t step);

struct BlockTable {
  std::array<std::array<BlockFn, kLanes>, kBlockOps> fn{};    // by the operands' lane (`where`: that of what it picks)
  std::array<std::array<BlockFn, kLanes>, kLanes> convert{};  // [from][to]
  std::array<LoadFn, kDTypeCount> load{};
  std::array<StoreFn, kDTypeCount> store{};

  BlockFn find(BlockOp op, Lane lane) const { return fn[static_cast<size_t>(op)][static_cast<size_t>(lane)]; }
};

enum class BlockIsa : uint8_t { baseline, v3, v4 };  // of x86-64: v3 has AVX2, v4 AVX-512

// The functions for an instruction set; null if this build or this processor does not have it.
const BlockTable* block_table(BlockIsa isa);
const BlockTable& best_block_table();
// Makes best_block_table give that of `isa`, for tests. REQUIRES: no program is running.
bool use_block_table(BlockIsa isa);

}  // namespace sg::cpu
