// The innermost loop of matrix products by multiply-adds: a tile of C that stays in registers while k runs over packed
// A and B.
//
// Each element is one chain of fused multiply-adds over increasing k, on every instruction set; that is all that the
// bits of a product depend on. Pairs of bf16 are such chains too, where numbers and sums below 2^-126 count as zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "librun/cpu/instruction_set.h"

namespace sg::cpu {

// Products are summed up in blocks of this many k. Fast numerics start each block at zero and add the blocks up in
// order, which keeps rounding errors small; strict numerics carry the chain on.
inline constexpr int64_t kSumBlock = 256;

// Elements from one row of packed A to the next. An odd number of cache lines: rows do not compete for cache sets.
inline constexpr int64_t kPackedRow = kSumBlock + 16;

// Two bf16 numbers at neighbouring k, as processors that multiply bf16 take them: `first`, of the lower k, is multiplied
// and added first. Behind an odd last k, `second` is zero.
struct Bf16Pair {
  uint16_t second, first;
};

// What operands packed as P are: numbers, or pairs of them.
template <class P>
struct Packing {
  using Sum = P;
  static constexpr int64_t kDepth = 1;         // k in an element
  static constexpr int64_t kRow = kPackedRow;  // elements from one row of packed A to the next
};
template <>
struct Packing<Bf16Pair> {
  using Sum = float;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kRow = kSumBlock / 2 + 16;
};

template <class P>
int64_t packed_depth(int64_t k) {  // elements that k numbers are
  return (k + Packing<P>::kDepth - 1) / Packing<P>::kDepth;
}

enum class TileStart : uint8_t {
  zero,   // C = A B
  add,    // C = C + (A B), the product summed up by itself
  chain,  // C = C + A B, C being where the chains start
};

inline constexpr int64_t kCacheLine = 64;

// What a tile prefetches besides its sums while it computes, two cache lines at a time and evenly: all at once they would
// keep its own loads from the fill buffers of the first cache level.
struct Ahead {
  const std::byte* at = nullptr;   // null: nothing
  int64_t pairs = 1;               // of lines, side by side in a run
  int64_t left = 1;                // of them from `at` on
  int64_t gap = 0;                 // bytes from the end of a run's last pair to the next run
  int64_t every = kSumBlock / 16;  // k from one pair to the next
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
  P* copy = nullptr;  // run_copying: where the rows of b go, side by side
};

// The same of a B whose rows lie anywhere, its sums of `chain` k being added up in order.
template <class P>
struct GatherTile {
  const P* a;                   // [rows, k], rows Packing<P>::kRow apart
  const P* b;                   // row i: [columns] from b + at[i] on
  const int64_t* at;            // [k]
  int64_t k;                    // elements of P: at most kSumBlock of k
  int64_t chain;                // likewise
  typename Packing<P>::Sum* c;  // [rows, columns]
  int64_t c_step;
  TileStart first, later;  // of the first chain, and of the others
};

inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxTileColumns = 32;

template <class P>
struct TileKernels {
  using Run = void (*)(const Tile<P>& tile);
  using Gather = void (*)(const GatherTile<P>& tile);
  int rows, columns;              // of a full tile; all tiles have full width
  Run run[kMaxTileRows];          // [rows - 1]
  Run run_copying[kMaxTileRows];  // the same, and packs b for the tiles that follow
  Gather gather[kMaxTileRows];    // [rows - 1]
  void (*transpose)(const P* from, int64_t from_step, P* to, int64_t to_step);  // 16 x 16
};

template <class P>  // float, double, Bf16Pair. REQUIRES: isa_available(isa); for pairs has_bf16_pairs()
const TileKernels<P>& tile_kernels(Isa isa);
template <>
const TileKernels<Bf16Pair>& tile_kernels(Isa isa);

}  // namespace sg::cpu
