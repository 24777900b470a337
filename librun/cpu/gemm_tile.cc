#include "librun/cpu/gemm_tile.h"

#include <immintrin.h>

#include <cmath>
#include <type_traits>
#include <utility>

// gcc 12 warns about its own undefined vectors (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace sg::cpu {
namespace {

template <class T>
void transpose_plain(const T* from, int64_t from_step, T* to, int64_t to_step) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[j * to_step + i] = from[i * from_step + j];
}

#define SG_TARGET
namespace plain {

template <class Element>
struct Simd {
  using T = Element;
  using P = Element;
  using V = Element;
  static constexpr int kLanes = 1;
  static V load(const T* p) { return *p; }
  static void store(T* p, V v) { *p = v; }
  static V zero() { return 0; }
  static V spread(T x) { return x; }
  static V add(V a, V b) { return a + b; }
  static V fma(V a, V b, V c) { return std::fma(a, b, c); }
};

#include "librun/cpu/gemm_tile.inc"

}  // namespace plain
#undef SG_TARGET

#define SG_TARGET __attribute__((target("avx2,fma")))
#define SG_TILE_OP [[gnu::always_inline]] SG_TARGET static inline
namespace avx2 {

struct Float {
  using T = float;
  using P = float;
  using V = __m256;
  static constexpr int kLanes = 8;
  SG_TILE_OP V load(const T* p) { return _mm256_loadu_ps(p); }
  SG_TILE_OP void store(T* p, V v) { _mm256_storeu_ps(p, v); }
  SG_TILE_OP V zero() { return _mm256_setzero_ps(); }
  SG_TILE_OP V spread(T x) { return _mm256_set1_ps(x); }
  SG_TILE_OP V add(V a, V b) { return _mm256_add_ps(a, b); }
  SG_TILE_OP V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
};

struct Double {
  using T = double;
  using P = double;
  using V = __m256d;
  static constexpr int kLanes = 4;
  SG_TILE_OP V load(const T* p) { return _mm256_loadu_pd(p); }
  SG_TILE_OP void store(T* p, V v) { _mm256_storeu_pd(p, v); }
  SG_TILE_OP V zero() { return _mm256_setzero_pd(); }
  SG_TILE_OP V spread(T x) { return _mm256_set1_pd(x); }
  SG_TILE_OP V add(V a, V b) { return _mm256_add_pd(a, b); }
  SG_TILE_OP V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
};

#include "librun/cpu/gemm_tile.inc"

SG_TARGET void transpose8(const float* from, int64_t from_step, float* to, int64_t to_step) {
  __m256 r[8], s[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * from_step);
  for (int i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0x44);
      r[i + 2 * j + 1] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0xEE);
    }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

SG_TARGET void transpose(const float* from, int64_t from_step, float* to, int64_t to_step) {
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 16; j += 8) transpose8(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
}

SG_TARGET void transpose4(const double* from, int64_t from_step, double* to, int64_t to_step) {
  __m256d r[4], s[4];
  for (int i = 0; i < 4; ++i) r[i] = _mm256_loadu_pd(from + i * from_step);
  for (int i = 0; i < 4; i += 2) {
    s[i] = _mm256_unpacklo_pd(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_pd(r[i], r[i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    _mm256_storeu_pd(to + i * to_step, _mm256_permute2f128_pd(s[i], s[i + 2], 0x20));
    _mm256_storeu_pd(to + (i + 2) * to_step, _mm256_permute2f128_pd(s[i], s[i + 2], 0x31));
  }
}

SG_TARGET void transpose(const double* from, int64_t from_step, double* to, int64_t to_step) {
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 16; j += 4) transpose4(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
}

}  // namespace avx2
#undef SG_TARGET

#define SG_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
namespace avx512 {

struct Float {
  using T = float;
  using P = float;
  using V = __m512;
  static constexpr int kLanes = 16;
  SG_TILE_OP V load(const T* p) { return _mm512_loadu_ps(p); }
  SG_TILE_OP void store(T* p, V v) { _mm512_storeu_ps(p, v); }
  SG_TILE_OP V zero() { return _mm512_setzero_ps(); }
  SG_TILE_OP V spread(T x) { return _mm512_set1_ps(x); }
  SG_TILE_OP V add(V a, V b) { return _mm512_add_ps(a, b); }
  SG_TILE_OP V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
};

struct Double {
  using T = double;
  using P = double;
  using V = __m512d;
  static constexpr int kLanes = 8;
  SG_TILE_OP V load(const T* p) { return _mm512_loadu_pd(p); }
  SG_TILE_OP void store(T* p, V v) { _mm512_storeu_pd(p, v); }
  SG_TILE_OP V zero() { return _mm512_setzero_pd(); }
  SG_TILE_OP V spread(T x) { return _mm512_set1_pd(x); }
  SG_TILE_OP V add(V a, V b) { return _mm512_add_pd(a, b); }
  SG_TILE_OP V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
};

#include "librun/cpu/gemm_tile.inc"

// Four rounds: exchange pairs, fours, then quarters of registers.
SG_TARGET void transpose(const float* from, int64_t from_step, float* to, int64_t to_step) {
  __m512 r[16], s[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from + i * from_step);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {  // r[i + c]: column c of every quarter, rows i to i + 3
    r[i] = _mm512_shuffle_ps(s[i], s[i + 2], 0x44);
    r[i + 1] = _mm512_shuffle_ps(s[i], s[i + 2], 0xEE);
    r[i + 2] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0x44);
    r[i + 3] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0xEE);
  }
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {
    __m512 low01 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0x44), high01 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0xEE);
    __m512 low23 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0x44),
           high23 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0xEE);
    _mm512_storeu_ps(to + c * to_step, _mm512_shuffle_f32x4(low01, low23, 0x88));
    _mm512_storeu_ps(to + (c + 4) * to_step, _mm512_shuffle_f32x4(low01, low23, 0xDD));
    _mm512_storeu_ps(to + (c + 8) * to_step, _mm512_shuffle_f32x4(high01, high23, 0x88));
    _mm512_storeu_ps(to + (c + 12) * to_step, _mm512_shuffle_f32x4(high01, high23, 0xDD));
  }
}

// Two rounds: exchange pairs within registers, then quarters of registers.
SG_TARGET void transpose8(const double* from, int64_t from_step, double* to, int64_t to_step) {
  __m512d pairs[2][4];
  for (int i = 0; i < 4; ++i) {
    __m512d above = _mm512_loadu_pd(from + 2 * i * from_step), below = _mm512_loadu_pd(from + (2 * i + 1) * from_step);
    pairs[0][i] = _mm512_unpacklo_pd(above, below);
    pairs[1][i] = _mm512_unpackhi_pd(above, below);
  }
  for (int odd = 0; odd < 2; ++odd) {
    const __m512d* p = pairs[odd];
    __m512d low01 = _mm512_shuffle_f64x2(p[0], p[1], 0x44), high01 = _mm512_shuffle_f64x2(p[0], p[1], 0xEE);
    __m512d low23 = _mm512_shuffle_f64x2(p[2], p[3], 0x44), high23 = _mm512_shuffle_f64x2(p[2], p[3], 0xEE);
    _mm512_storeu_pd(to + odd * to_step, _mm512_shuffle_f64x2(low01, low23, 0x88));
    _mm512_storeu_pd(to + (odd + 2) * to_step, _mm512_shuffle_f64x2(low01, low23, 0xDD));
    _mm512_storeu_pd(to + (odd + 4) * to_step, _mm512_shuffle_f64x2(high01, high23, 0x88));
    _mm512_storeu_pd(to + (odd + 6) * to_step, _mm512_shuffle_f64x2(high01, high23, 0xDD));
  }
}

SG_TARGET void transpose(const double* from, int64_t from_step, double* to, int64_t to_step) {
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 16; j += 8) transpose8(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
}

// Moves 32 bits at a time, without interpreting them.
SG_TARGET void transpose_pairs(const Bf16Pair* from, int64_t from_step, Bf16Pair* to, int64_t to_step) {
  transpose(reinterpret_cast<const float*>(from), from_step, reinterpret_cast<float*>(to), to_step);
}

}  // namespace avx512
#undef SG_TARGET

#define SG_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")))
namespace avx512_bf16 {

// The CPU multiplies and adds the upper half of a pair first; each of the two is a fused multiply-add.
struct Pairs {
  using T = float;
  using P = Bf16Pair;
  using V = __m512;
  static constexpr int kLanes = 16;
  SG_TILE_OP __m512bh load(const P* p) { return (__m512bh)_mm512_loadu_si512(p); }
  SG_TILE_OP __m512bh spread(P x) { return (__m512bh)_mm512_set1_epi32(__builtin_bit_cast(int, x)); }
  SG_TILE_OP V load(const T* p) { return _mm512_loadu_ps(p); }
  SG_TILE_OP void store(P* p, __m512bh v) { _mm512_storeu_si512(p, (__m512i)v); }
  SG_TILE_OP void store(T* p, V v) { _mm512_storeu_ps(p, v); }
  SG_TILE_OP V zero() { return _mm512_setzero_ps(); }
  SG_TILE_OP V add(V a, V b) { return _mm512_add_ps(a, b); }
  SG_TILE_OP V fma(__m512bh a, __m512bh b, V c) { return _mm512_dpbf16_ps(c, a, b); }
};

#include "librun/cpu/gemm_tile.inc"

}  // namespace avx512_bf16
#undef SG_TARGET

template <int kCount>
using Rows = std::make_integer_sequence<int, kCount>;

}  // namespace

template <class T>
const TileKernels<T>& tile_kernels(Isa isa) {
  constexpr bool is_float = std::is_same_v<T, float>;
  using Avx2 = std::conditional_t<is_float, avx2::Float, avx2::Double>;
  using Avx512 = std::conditional_t<is_float, avx512::Float, avx512::Double>;
  static const TileKernels<T> of_plain = plain::kernels_of<plain::Simd<T>>(Rows<4>(), transpose_plain<T>);
  static const TileKernels<T> of_avx2 = avx2::kernels_of<Avx2>(Rows<6>(), avx2::transpose);
  static const TileKernels<T> of_avx512 = avx512::kernels_of<Avx512>(Rows<14>(), avx512::transpose);
  return isa == Isa::avx512 ? of_avx512 : isa == Isa::avx2 ? of_avx2 : of_plain;
}

template <>
const TileKernels<Bf16Pair>& tile_kernels(Isa) {
  static const TileKernels<Bf16Pair> kernels =
      avx512_bf16::kernels_of<avx512_bf16::Pairs>(Rows<14>(), avx512::transpose_pairs);
  return kernels;
}

template const TileKernels<float>& tile_kernels(Isa);
template const TileKernels<double>& tile_kernels(Isa);

}  // namespace sg::cpu
