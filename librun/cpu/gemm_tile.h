// The innermost loop of matrix products by multiply-adds: a tile of C that stays in registers while k runs over packed
// A and B.
//
// Each element is one chain of fused multiply-adds over increasing k, on every instruction set; the bits of a product
// depend on nothing else. Pairs of bf16 are such chains, too, but treat numbers and sums below 2^-126 as zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "librun/cpu/instruction_set.h"

namespace sg::cpu {

// Products are summed in blocks of this many k. Fast numerics start each block at zero and add up the blocks in order,
// which keeps rounding errors small; strict numerics continue the chain.
inline constexpr int64_t kSumBlock = 256;

// Elements between rows of packed A. An odd number of cache lines, so that rows do not compete for cache sets.
inline constexpr int64_t kPackedRow = kSumBlock + 16;

// Two bf16 numbers at adjacent k, in the format of CPUs that multiply bf16 pairs: `first`, of the lower k, is
// multiplied and added first. After an odd last k, `second` is zero.
struct Bf16Pair {
  uint16_t second, first;
};

// The packed element type P of operands: numbers, or pairs of them.
template <class P>
struct Packing {
  using Sum = P;
  static constexpr int64_t kDepth = 1;         // k per element
  static constexpr int64_t kRow = kPackedRow;  // elements between rows of packed A
};
template <>
struct Packing<Bf16Pair> {
  using Sum = float;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kRow = kSumBlock / 2 + 16;
};

template <class P>
int64_t packed_depth(int64_t k) {  // number of elements for k numbers
  return (k + Packing<P>::kDepth - 1) / Packing<P>::kDepth;
}

enum class TileStart : uint8_t {
  zero,   // C = A B
  add,    // C = C + (A B), with the product summed separately
  chain,  // C = C + A B, with C as the start of the chains
};

inline constexpr int64_t kCacheLine = 64;

// What a tile prefetches besides its sums while it computes, two cache lines at a time and evenly spaced: all at once,
// they would occupy the fill buffers of the L1 cache that its own loads need.
struct Ahead {
  const std::byte* at = nullptr;   // null: nothing
  int64_t pairs = 1;               // pairs of lines, contiguous in a run
  int64_t left = 1;                // pairs left in the run, from `at` on
  int64_t gap = 0;                 // bytes from the end of a run's last pair to the next run
  int64_t every = kSumBlock / 16;  // k between pairs
};

template <class P>
struct Tile {
  const P* a;  // [rows, k], rows Packing<P>::kRow apart
  const P* b;  // [k, columns], rows b_step apart
  int64_t b_step;
  int64_t k;                    // elements of P: at most kSumBlock of k
  typename Packing<P>::Sum* c;  // [rows, columns]
  int64_t c_step;
  TileStart start;
  Ahead ahead;
  P* copy = nullptr;  // run_copying: destination for the rows of b, contiguous
};

// The same for a B with rows anywhere; its sums of `chain` k are added up in order.
template <class P>
struct GatherTile {
  const P* a;                   // [rows, k], rows Packing<P>::kRow apart
  const P* b;                   // row i: [columns] at b + at[i]
  const int64_t* at;            // [k]
  int64_t k;                    // elements of P: at most kSumBlock of k
  int64_t chain;                // likewise
  typename Packing<P>::Sum* c;  // [rows, columns]
  int64_t c_step;
  TileStart first, later;  // for the first chain, and for the others
};

inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxTileColumns = 32;

template <class P>
struct TileKernels {
  using Run = void (*)(const Tile<P>& tile);
  using Gather = void (*)(const GatherTile<P>& tile);
  int rows, columns;              // of a full tile; all tiles have full width
  Run run[kMaxTileRows];          // [rows - 1]
  Run run_copying[kMaxTileRows];  // the same, but also packs b for the next tiles
  Gather gather[kMaxTileRows];    // [rows - 1]
  void (*transpose)(const P* from, int64_t from_step, P* to, int64_t to_step);  // 16 x 16
};

template <class P>  // float, double, Bf16Pair. REQUIRES: isa_available(isa); for pairs has_bf16_pairs()
const TileKernels<P>& tile_kernels(Isa isa);
template <>
const TileKernels<Bf16Pair>& tile_kernels(Isa isa);

}  // namespace sg::cpu
