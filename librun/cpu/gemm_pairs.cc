// bf16 operands as pairs of adjacent k.
//
// If k is contiguous in memory, pairs already exist, except for the order of their two numbers; otherwise they are
// combined from two lines. What is packed across lines is transposed in squares.
#include <cstring>

#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/isa.h"

namespace sg::cpu {
namespace {

constexpr int64_t kSide = 16;  // side of the square that is transposed at a time

// Pairs along one line.
SG_CLONES void pairs_along(const uint16_t* line, int64_t pairs, Bf16Pair* to) {
  for (int64_t p = 0; p < pairs; ++p) to[p] = {line[2 * p + 1], line[2 * p]};
}

// One pair per line: the numbers at one k, and at the next.
SG_CLONES void pairs_across(const uint16_t* first, const uint16_t* second, int64_t lines, Bf16Pair* to) {
  for (int64_t i = 0; i < lines; ++i) to[i] = {second[i], first[i]};
}

// A block whose lines are the rows of A, or the columns of B.
struct Lines {
  const uint16_t* data;
  int64_t step, k_step;
  int64_t count, depth;

  int64_t whole_pairs() const { return depth / 2; }
  const uint16_t* at(int64_t line, int64_t k) const { return data + line * step + k * k_step; }
  Bf16Pair pair(int64_t line, int64_t p) const {
    const uint16_t second = 2 * p + 1 < depth ? *at(line, 2 * p + 1) : uint16_t{0};
    return {second, *at(line, 2 * p)};
  }
};

// Packs pairs [begin, end) of lines [first, last) one by one: line_step and pair_step are strides in `to`.
void pack_singly(const Lines& from, int64_t first, int64_t last, int64_t begin, int64_t end, Bf16Pair* to,
                 int64_t line_step, int64_t pair_step) {
  for (int64_t line = first; line < last; ++line)
    for (int64_t p = begin; p < end; ++p) to[line * line_step + p * pair_step] = from.pair(line, p);
}

// Creates squares of whole pairs by `make_square(line, pair, square)`, and transposes them to strides `line_step` and
// `pair_step`, one of which is 1; packs the edges one by one.
template <class Make>
void pack_turned(const TileKernels<Bf16Pair>& kernels, const Lines& from, Bf16Pair* to, int64_t line_step,
                 int64_t pair_step, const Make& make_square) {
  const int64_t lines = from.count / kSide * kSide, pairs = from.whole_pairs() / kSide * kSide;
  alignas(64) Bf16Pair square[kSide * kSide];
  for (int64_t line = 0; line < lines; line += kSide)
    for (int64_t p = 0; p < pairs; p += kSide) {
      make_square(line, p, square);
      kernels.transpose(square, kSide, to + line * line_step + p * pair_step, line_step * pair_step);
    }
  const int64_t all = packed_depth<Bf16Pair>(from.depth);
  pack_singly(from, 0, lines, pairs, all, to, line_step, pair_step);
  pack_singly(from, lines, from.count, 0, all, to, line_step, pair_step);
}

}  // namespace

template <>
void pack_left(const TileKernels<Bf16Pair>& kernels, const MatrixView& a, int64_t rows, int64_t k, Bf16Pair* to,
               int64_t to_step) {
  const Lines from{reinterpret_cast<const uint16_t*>(a.data), a.row_step, a.column_step, rows, k};
  const int64_t whole = from.whole_pairs(), all = packed_depth<Bf16Pair>(k);
  if (from.k_step == 1) {
    for (int64_t i = 0; i < rows; ++i) pairs_along(from.at(i, 0), whole, to + i * to_step);
    pack_singly(from, 0, rows, whole, all, to, to_step, 1);
  } else if (from.step == 1) {
    pack_turned(kernels, from, to, to_step, 1, [&](int64_t line, int64_t p, Bf16Pair* square) {
      for (int64_t i = 0; i < kSide; ++i)
        pairs_across(from.at(line, 2 * (p + i)), from.at(line, 2 * (p + i) + 1), kSide, square + i * kSide);
    });
  } else {
    pack_singly(from, 0, rows, 0, all, to, to_step, 1);
  }
}

template <>
void pack_right(const TileKernels<Bf16Pair>& kernels, const MatrixView& b, int64_t k, int64_t columns, Bf16Pair* to,
                int64_t to_step) {
  const Lines from{reinterpret_cast<const uint16_t*>(b.data), b.column_step, b.row_step, columns, k};
  const int64_t whole = from.whole_pairs(), all = packed_depth<Bf16Pair>(k);
  if (from.step == 1) {
    for (int64_t p = 0; p < whole; ++p)
      pairs_across(from.at(0, 2 * p), from.at(0, 2 * p + 1), columns, to + p * to_step);
    pack_singly(from, 0, columns, whole, all, to, 1, to_step);
  } else if (from.k_step == 1) {
    pack_turned(kernels, from, to, 1, to_step, [&](int64_t line, int64_t p, Bf16Pair* square) {
      for (int64_t i = 0; i < kSide; ++i) pairs_along(from.at(line + i, 2 * p), kSide, square + i * kSide);
    });
  } else {
    pack_singly(from, 0, columns, 0, all, to, 1, to_step);
  }
}

}  // namespace sg::cpu
