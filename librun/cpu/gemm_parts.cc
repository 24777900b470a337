#include "librun/cpu/gemm_parts.h"

#include <immintrin.h>

// gcc 12 takes the compiler's own "undefined" vectors for a bug (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define SG_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define SG_AVX512_OP [[gnu::always_inline]] SG_AVX512 static inline

namespace sg::cpu {
namespace {

constexpr int kPairs = static_cast<int>(kUnitDepth / 2);

// One part of 16 pairs of numbers: bf16 of the even ones in the low halves, of the odd ones in the high halves.
struct Pairs {
  __m512 even, odd;              // what is left to split
};

SG_AVX512_OP __m512i high_halves(__m512i even, __m512i odd) {
  return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(even, 16), odd);
}

// Takes the nearest bf16 of each number away from it, ties away from zero. The difference is exact.
SG_AVX512_OP __m512i take_part(Pairs* rest) {
  const __m512i half = _mm512_set1_epi32(0x8000), mask = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  __m512i even = _mm512_add_epi32(_mm512_castps_si512(rest->even), half);
  __m512i odd = _mm512_add_epi32(_mm512_castps_si512(rest->odd), half);
  rest->even = _mm512_sub_ps(rest->even, _mm512_castsi512_ps(_mm512_and_si512(even, mask)));
  rest->odd = _mm512_sub_ps(rest->odd, _mm512_castsi512_ps(_mm512_and_si512(odd, mask)));
  return high_halves(even, odd);
}

SG_AVX512_OP void split(Pairs rest, __m512i* parts, int64_t step) {
#pragma GCC unroll 3
  for (int p = 0; p + 1 < kParts; ++p) parts[p * step] = take_part(&rest);
  parts[(kParts - 1) * step] = high_halves(_mm512_castps_si512(rest.even), _mm512_castps_si512(rest.odd));
}

// The first `count` of 16 numbers; zeros behind.
SG_AVX512_OP __m512 load(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << (count < 0 ? 0 : count)) - 1), from);
}

// 32 numbers of one line: pair p in lane p.
SG_AVX512_OP Pairs load_along(const float* from, int64_t depth) {
  const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  __m512 low = load(from, depth), high = load(from + 16, depth - 16);
  return {_mm512_permutex2var_ps(low, evens, high), _mm512_permutex2var_ps(low, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high)};
}

// The same k and the next of 16 lines: line i in lane i.
SG_AVX512_OP Pairs load_across(const float* from, int64_t k_step, int64_t lines, bool has_odd) {
  return {load(from, lines), has_odd ? load(from + k_step, lines) : _mm512_setzero_ps()};
}

// 16 x 16 of 32 bits, in place.
SG_AVX512_OP void transpose(__m512i* r) {
  __m512i s[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {   // r[i + c]: column c of every quarter, rows i to i + 3
    r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {
    __m512i low01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x44), high01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xEE);
    __m512i low23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x44), high23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xEE);
    s[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    s[c + 4] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    s[c + 8] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    s[c + 12] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = s[i];
}

// Where the parts of a tile are made: vector i of part p is at[p * step + i].
struct Place {
  __m512i* at;
  int64_t step;
};

// Tiles turned round: pairs to lines, or lines to pairs.
SG_AVX512 void store_turned(const __m512i* parts, Place to) {
  for (int p = 0; p < kParts; ++p) {
    __m512i tile[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) tile[i] = parts[p * 16 + i];
    transpose(tile);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) to.at[p * to.step + i] = tile[i];
  }
}

SG_AVX512_OP void split_lines(const float* from, int64_t line_step, int64_t lines, int64_t depth, Place to) {
  for (int i = 0; i < kUnitLines; ++i) {
    Pairs pairs{_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (i < lines) pairs = load_along(from + i * line_step, depth);
    split(pairs, to.at + i, to.step);
  }
}

SG_AVX512_OP void split_pairs(const float* from, int64_t k_step, int64_t lines, int64_t depth, Place to) {
  for (int p = 0; p < kPairs; ++p) {
    Pairs pairs{_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (2 * p < depth) pairs = load_across(from + 2 * p * k_step, k_step, lines, 2 * p + 1 < depth);
    split(pairs, to.at + p, to.step);
  }
}

SG_AVX512 void pack_along(TileForm form, const float* from, int64_t line_step, int64_t lines, int64_t depth, Place to) {
  if (form == TileForm::lines) return split_lines(from, line_step, lines, depth, to);
  __m512i parts[kParts * 16];
  split_lines(from, line_step, lines, depth, {parts, 16});
  store_turned(parts, to);
}

SG_AVX512 void pack_across(TileForm form, const float* from, int64_t k_step, int64_t lines, int64_t depth, Place to) {
  if (form == TileForm::pairs) return split_pairs(from, k_step, lines, depth, to);
  __m512i parts[kParts * 16];
  split_pairs(from, k_step, lines, depth, {parts, 16});
  store_turned(parts, to);
}

// Neither lines nor k side by side: they are, in a copy.
void pack_scattered(TileForm form, const float* from, int64_t line_step, int64_t k_step, int64_t lines, int64_t depth, Place to) {
  float copy[kUnitTile];
  for (int64_t i = 0; i < lines; ++i)
    for (int64_t k = 0; k < depth; ++k) copy[i * kUnitDepth + k] = from[i * line_step + k * k_step];
  pack_along(form, copy, kUnitDepth, lines, depth, to);
}

}  // namespace

void pack_parts(TileForm form, const MatrixView& from, int64_t lines, int64_t depth, uint16_t* to, int64_t part_step) {
  const Place place{reinterpret_cast<__m512i*>(to), part_step / kUnitDepth};
  auto* data = reinterpret_cast<const float*>(from.data);
  if (from.column_step == 1) pack_along(form, data, from.row_step, lines, depth, place);
  else if (from.row_step == 1) pack_across(form, data, from.column_step, lines, depth, place);
  else pack_scattered(form, data, from.row_step, from.column_step, lines, depth, place);
}

}  // namespace sg::cpu
