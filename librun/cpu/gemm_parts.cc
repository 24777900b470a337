#include "librun/cpu/gemm_parts.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <type_traits>

// gcc 12 warns about its own undefined vectors (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define SG_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define SG_AVX512_OP [[gnu::always_inline]] SG_AVX512 static inline

namespace sg::cpu {
namespace {

constexpr int kPairs = static_cast<int>(kUnitDepth / 2);
constexpr int kMaxParts = 3;
constexpr int kTopExponent = 14;  // of a line's largest number, after scaling for f16
constexpr float kWideBelow = 0x1p-4f;

// The remainders of 16 pairs of adjacent k, still to be split.
struct Pairs {
  __m512 even, odd;
};

// Combines the high halves of even and odd numbers: even ones in the low halves, odd ones in the high halves.
SG_AVX512_OP __m512i high_halves(__m512i even, __m512i odd) {
  return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(even, 16), odd);
}

SG_AVX512_OP __m512i interleave(__m256i even, __m256i odd) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

SG_AVX512_OP __m512i side_by_side(__m256i first, __m256i second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// Subtracts the nearest bf16 (ties away from zero) from each number, and returns it. The difference is exact.
SG_AVX512_OP __m512i take_bf16(Pairs* rest) {
  const __m512i half = _mm512_set1_epi32(0x8000), mask = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  __m512i even = _mm512_add_epi32(_mm512_castps_si512(rest->even), half);
  __m512i odd = _mm512_add_epi32(_mm512_castps_si512(rest->odd), half);
  rest->even = _mm512_sub_ps(rest->even, _mm512_castsi512_ps(_mm512_and_si512(even, mask)));
  rest->odd = _mm512_sub_ps(rest->odd, _mm512_castsi512_ps(_mm512_and_si512(odd, mask)));
  return high_halves(even, odd);
}

// The same with the nearest f16, ties to even.
SG_AVX512_OP __m512i take_f16(Pairs* rest) {
  __m256i even = _mm512_cvtps_ph(rest->even, _MM_FROUND_TO_NEAREST_INT),
          odd = _mm512_cvtps_ph(rest->odd, _MM_FROUND_TO_NEAREST_INT);
  rest->even = _mm512_sub_ps(rest->even, _mm512_cvtph_ps(even));
  rest->odd = _mm512_sub_ps(rest->odd, _mm512_cvtph_ps(odd));
  return interleave(even, odd);
}

// Splits numbers, scaled by 2^-exponents, into parts.
template <Units kUnits>
SG_AVX512_OP void split(Pairs rest, __m512 exponents, __m512i* parts, int64_t step) {
  if constexpr (kUnits == Units::f16) {
    const __m512 scale = _mm512_sub_ps(_mm512_setzero_ps(), exponents);
    rest = {_mm512_scalef_ps(rest.even, scale), _mm512_scalef_ps(rest.odd, scale)};
    parts[0] = take_f16(&rest);
    parts[step] = interleave(_mm512_cvtps_ph(rest.even, _MM_FROUND_TO_NEAREST_INT),
                             _mm512_cvtps_ph(rest.odd, _MM_FROUND_TO_NEAREST_INT));
  } else {
    parts[0] = take_bf16(&rest);
    parts[step] = take_bf16(&rest);
    parts[2 * step] = high_halves(_mm512_castps_si512(rest.even), _mm512_castps_si512(rest.odd));
  }
}

// The first `count` of 16 numbers, followed by zeros.
SG_AVX512_OP __m512 load(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << (count < 0 ? 0 : count)) - 1), from);
}

// 32 numbers of one line: pair p in lane p.
SG_AVX512_OP Pairs load_along(const float* from, int64_t depth) {
  const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  __m512 low = load(from, depth), high = load(from + 16, depth - 16);
  return {_mm512_permutex2var_ps(low, evens, high),
          _mm512_permutex2var_ps(low, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high)};
}

// One k and the next of 16 lines: line i in lane i.
SG_AVX512_OP Pairs load_across(const float* from, int64_t k_step, int64_t lines, bool has_odd) {
  return {load(from, lines), has_odd ? load(from + k_step, lines) : _mm512_setzero_ps()};
}

// Transposes 16 x 16 elements of 32 bits, in place.
SG_AVX512_OP void transpose(__m512i* r) {
  __m512i s[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {  // r[i + c]: column c of every quarter, rows i to i + 3
    r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {
    __m512i low01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x44), high01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xEE);
    __m512i low23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x44),
            high23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xEE);
    s[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    s[c + 4] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    s[c + 8] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    s[c + 12] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = s[i];
}

// Where the parts of a tile are built: vector i of part p is at[p * step + i].
struct Place {
  __m512i* at;
  int64_t step;
};

// Transposes tiles: pairs to lines, or lines to pairs.
template <Units kUnits>
SG_AVX512 void store_turned(const __m512i* parts, Place to) {
  for (int p = 0; p < parts_of(kUnits); ++p) {
    __m512i tile[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) tile[i] = parts[p * 16 + i];
    transpose(tile);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) to.at[p * to.step + i] = tile[i];
  }
}

// Splits 32 numbers of one line, scaled by 2^-exponents, into f16 parts: adjacent numbers already form pairs.
SG_AVX512_OP void split_line_f16(const float* from, int64_t depth, __m512 exponents, __m512i* parts, int64_t step) {
  const __m512 scale = _mm512_sub_ps(_mm512_setzero_ps(), exponents);
  const __m512 first = _mm512_scalef_ps(load(from, depth), scale);
  const __m512 second = _mm512_scalef_ps(load(from + 16, depth - 16), scale);
  const __m256i first_high = _mm512_cvtps_ph(first, _MM_FROUND_TO_NEAREST_INT),
                second_high = _mm512_cvtps_ph(second, _MM_FROUND_TO_NEAREST_INT);
  parts[0] = side_by_side(first_high, second_high);
  parts[step] =
      side_by_side(_mm512_cvtps_ph(_mm512_sub_ps(first, _mm512_cvtph_ps(first_high)), _MM_FROUND_TO_NEAREST_INT),
                   _mm512_cvtps_ph(_mm512_sub_ps(second, _mm512_cvtph_ps(second_high)), _MM_FROUND_TO_NEAREST_INT));
}

template <Units kUnits>
SG_AVX512_OP void split_lines(const float* from, int64_t line_step, int64_t lines, int64_t depth,
                              const LineScales& scales, Place to) {
  for (int i = 0; i < kUnitLines; ++i) {
    if (kUnits == Units::f16 && i < lines) {
      split_line_f16(from + i * line_step, depth, _mm512_set1_ps(scales.exponent[i]), to.at + i, to.step);
      continue;
    }
    Pairs pairs{_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (i < lines) pairs = load_along(from + i * line_step, depth);
    split<kUnits>(pairs, kUnits == Units::f16 ? _mm512_set1_ps(scales.exponent[i]) : _mm512_setzero_ps(), to.at + i,
                  to.step);
  }
}

template <Units kUnits>
SG_AVX512_OP void split_pairs(const float* from, int64_t k_step, int64_t lines, int64_t depth, const LineScales& scales,
                              Place to) {
  const __m512 of_lines = kUnits == Units::f16 ? _mm512_load_ps(scales.exponent) : _mm512_setzero_ps();
  for (int p = 0; p < kPairs; ++p) {
    Pairs pairs{_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (2 * p < depth) pairs = load_across(from + 2 * p * k_step, k_step, lines, 2 * p + 1 < depth);
    split<kUnits>(pairs, of_lines, to.at + p, to.step);
  }
}

// bf16 numbers as they are: those of a line already form pairs.
template <Units kUnits>
SG_AVX512_OP void split_lines(const uint16_t* from, int64_t line_step, int64_t lines, int64_t depth, const LineScales&,
                              Place to) {
  const auto lanes = static_cast<__mmask32>(depth >= kUnitDepth ? ~0u : (1u << depth) - 1);
  for (int64_t i = 0; i < kUnitLines; ++i)
    to.at[i] = i < lines ? _mm512_maskz_loadu_epi16(lanes, from + i * line_step) : _mm512_setzero_si512();
}

// The first `count` of 16 numbers, followed by zeros.
SG_AVX512_OP __m256i load(const uint16_t* from, int64_t count) {
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << count) - 1), from);
}

template <Units kUnits>
SG_AVX512_OP void split_pairs(const uint16_t* from, int64_t k_step, int64_t lines, int64_t depth, const LineScales&,
                              Place to) {
  for (int64_t p = 0; p < kPairs; ++p, from += 2 * k_step)
    to.at[p] = interleave(load(from, 2 * p < depth ? lines : 0), load(from + k_step, 2 * p + 1 < depth ? lines : 0));
}

template <Units kUnits>
using Element = std::conditional_t<kUnits == Units::whole, uint16_t, float>;

template <Units kUnits>
SG_AVX512 void pack_along(TileForm form, const Element<kUnits>* from, int64_t line_step, int64_t lines, int64_t depth,
                          const LineScales& scales, Place to) {
  if (form == TileForm::lines) return split_lines<kUnits>(from, line_step, lines, depth, scales, to);
  __m512i parts[kMaxParts * 16];
  split_lines<kUnits>(from, line_step, lines, depth, scales, {parts, 16});
  store_turned<kUnits>(parts, to);
}

template <Units kUnits>
SG_AVX512 void pack_across(TileForm form, const Element<kUnits>* from, int64_t k_step, int64_t lines, int64_t depth,
                           const LineScales& scales, Place to) {
  if (form == TileForm::pairs) return split_pairs<kUnits>(from, k_step, lines, depth, scales, to);
  __m512i parts[kMaxParts * 16];
  split_pairs<kUnits>(from, k_step, lines, depth, scales, {parts, 16});
  store_turned<kUnits>(parts, to);
}

template <Units kUnits>
void pack_tile(TileForm form, const MatrixView& from, int64_t lines, int64_t depth, const LineScales& scales,
               Place to) {
  using T = Element<kUnits>;
  auto* data = reinterpret_cast<const T*>(from.data);
  if (from.column_step == 1) return pack_along<kUnits>(form, data, from.row_step, lines, depth, scales, to);
  if (from.row_step == 1) return pack_across<kUnits>(form, data, from.column_step, lines, depth, scales, to);
  T copy[kUnitTile];  // neither lines nor k are contiguous: make a copy in which they are
  for (int64_t i = 0; i < lines; ++i)
    for (int64_t k = 0; k < depth; ++k) copy[i * kUnitDepth + k] = data[i * from.row_step + k * from.column_step];
  pack_along<kUnits>(form, copy, kUnitDepth, lines, depth, scales, to);
}

// The bits of numbers without their signs: ordered like the numbers, with inf and NaN above all.
struct Extent {
  uint32_t largest[kUnitLines] = {};
  uint32_t smallest[kUnitLines] = {};  // the smallest nonzero, minus 1; all bits set: there is none
};

SG_AVX512_OP __m512i magnitudes(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
}

SG_AVX512 void extent_along(const float* from, int64_t line_step, int64_t lines, int64_t depth, Extent* out) {
  for (int64_t i = 0; i < lines; ++i) {
    __m512i largest = _mm512_setzero_si512(), smallest = _mm512_set1_epi32(-1);
    for (int64_t k = 0; k < depth; k += 16) {
      __m512i x = magnitudes(load(from + i * line_step + k, depth - k));
      largest = _mm512_max_epu32(largest, x),
      smallest = _mm512_min_epu32(smallest, _mm512_sub_epi32(x, _mm512_set1_epi32(1)));
    }
    out->largest[i] = _mm512_reduce_max_epu32(largest), out->smallest[i] = _mm512_reduce_min_epu32(smallest);
  }
}

SG_AVX512 void extent_across(const float* from, int64_t k_step, int64_t lines, int64_t depth, Extent* out) {
  __m512i largest = _mm512_setzero_si512(), smallest = _mm512_set1_epi32(-1);
  for (int64_t k = 0; k < depth; ++k) {
    __m512i x = magnitudes(load(from + k * k_step, lines));
    largest = _mm512_max_epu32(largest, x),
    smallest = _mm512_min_epu32(smallest, _mm512_sub_epi32(x, _mm512_set1_epi32(1)));
  }
  _mm512_storeu_si512(out->largest, largest), _mm512_storeu_si512(out->smallest, smallest);
}

SG_AVX512 void find_line_scales(const Extent& extent, LineScales* scales) {
  const __m512i largest = _mm512_loadu_si512(extent.largest), below = _mm512_loadu_si512(extent.smallest);
  const __mmask16 zero = _mm512_cmp_epu32_mask(largest, _mm512_setzero_si512(), _MM_CMPINT_EQ);
  const __mmask16 finite = _mm512_cmp_epu32_mask(largest, _mm512_set1_epi32(0x7F800000), _MM_CMPINT_LT);
  const auto scaled = static_cast<__mmask16>(finite & ~zero);
  const __m512 exponent =
      _mm512_maskz_sub_ps(scaled, _mm512_getexp_ps(_mm512_castsi512_ps(largest)), _mm512_set1_ps(kTopExponent));
  const __m512 smallest = _mm512_castsi512_ps(_mm512_add_epi32(below, _mm512_set1_epi32(1)));
  const __mmask16 wide =
      _mm512_mask_cmp_ps_mask(scaled, smallest, _mm512_scalef_ps(_mm512_set1_ps(kWideBelow), exponent), _CMP_LT_OQ);
  _mm512_store_ps(scales->exponent, exponent);
  _mm512_store_ps(scales->doubt,
                  _mm512_mask_mov_ps(_mm512_maskz_mov_ps(wide, _mm512_set1_ps(1)), zero, _mm512_set1_ps(-2)));
}

}  // namespace

void scale_lines(const MatrixView& from, int64_t lines, int64_t depth, LineScales* scales) {
  auto* data = reinterpret_cast<const float*>(from.data);
  Extent extent;
  if (from.column_step == 1) {
    extent_along(data, from.row_step, lines, depth, &extent);
  } else if (from.row_step == 1) {
    extent_across(data, from.column_step, lines, depth, &extent);
  } else {
    for (int64_t i = 0; i < lines; ++i) {
      extent.smallest[i] = ~0u;
      for (int64_t k = 0; k < depth; ++k) {
        uint32_t x = std::bit_cast<uint32_t>(data[i * from.row_step + k * from.column_step]) & 0x7FFFFFFFu;
        extent.largest[i] = std::max(extent.largest[i], x), extent.smallest[i] = std::min(extent.smallest[i], x - 1);
      }
    }
  }
  find_line_scales(extent, scales);
}

void pack_parts(Units units, TileForm form, const MatrixView& from, int64_t lines, int64_t depth,
                const LineScales& scales, uint16_t* to, int64_t part_step) {
  const Place place{reinterpret_cast<__m512i*>(to), part_step / kUnitDepth};
  if (units == Units::f16) pack_tile<Units::f16>(form, from, lines, depth, scales, place);
  else if (units == Units::whole) pack_tile<Units::whole>(form, from, lines, depth, scales, place);
  else pack_tile<Units::bf16>(form, from, lines, depth, scales, place);
}

}  // namespace sg::cpu
