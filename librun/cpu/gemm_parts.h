// f32 numbers split into sums of numbers that matrix units multiply, in the layout of their tiles (gemm_units.h).
//
// bf16   three parts, exact: 3 times 8 bits of significand. Parts below 2^-126 count as zero.
// f16    two parts of 11 bits, each rounded to nearest; the remainder is at most one unit in the last place of f32. The
//        exponent range of f16 is small, so a line is first scaled by a power of two that brings its largest number
//        into [2^14, 2^15). The remainder of numbers far below the largest is up to 2^-25, scaled: a line that has any
//        below 2^-4 is `wide`.
//
// inf and NaN (and for bf16 what rounds to inf) cannot be split: their parts are inf and NaN, and every sum that
// contains them is NaN.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_pack.h"

namespace sg::cpu {

// What they multiply: f32 numbers in parts of bf16 or f16, or bf16 numbers as they are.
enum class Units : uint8_t { none, bf16, f16, whole };

inline constexpr int64_t kUnitLines = 16, kUnitDepth = 32;     // of a tile: lines are rows of A, or columns of B
inline constexpr int64_t kUnitTile = kUnitLines * kUnitDepth;  // elements

constexpr int parts_of(Units units) {  // high, (middle,) low
  return units == Units::whole ? 1 : units == Units::f16 ? 2 : 3;
}

constexpr bool has_parts(Units units) { return parts_of(units) > 1; }

// Layout of a tile in memory: [line, k], as A is read, or [pair of k, line, 2], as B is.
enum class TileForm : uint8_t { lines, pairs };

// The scales of a tile's lines, for f16; only a placeholder for bf16.
struct alignas(64) LineScales {
  float exponent[kUnitLines];  // e of the scale 2^-e; 0 for lines that are zero, contain inf or NaN, or do not exist
  float doubt[kUnitLines];     // 1 for wide lines, -2 for lines of zeros, else 0
};

// REQUIRES: f32; AVX-512; lines in 1..kUnitLines
void scale_lines(const MatrixView& from, int64_t lines, int64_t depth, LineScales* scales);

// Writes part p of from[line, k] into the tile at `to + p * part_step`; positions beyond `lines` and `depth` become
// zero. REQUIRES: f32; AVX-512; lines in 1..kUnitLines, depth in 1..kUnitDepth; `to` aligned to 64 bytes; scales of
// these lines for f16
void pack_parts(Units units, TileForm form, const MatrixView& from, int64_t lines, int64_t depth,
                const LineScales& scales, uint16_t* to, int64_t part_step);

}  // namespace sg::cpu
