// Attention of bf16 by tiles: scores exist for a tile of queries and keys at a time, in registers, and are never
// written to memory. Sums are in f32, in a fixed order: equal runs give equal bits.
//
// A block owns rows of queries (flash_forward.h) or of either side (flash_backward.h), 16 or 32 per warp, in registers,
// and iterates over the other side, which is staged in shared memory with double buffering: while one stage is used,
// the next one is loaded (async.h), so lanes synchronize once per stage.
//
// Memory  D is the depth of a head, rounded up to 64 or 128. Tensors are [batch, heads, rows, depth] with contiguous
//         depth, whose pairs of elements are aligned.
#pragma once

#include "librun/cuda/kernels/async.h"
#include "librun/cuda/kernels/exp2.h"
#include "librun/cuda/kernels/raw.h"
#include "librun/cuda/kernels/tile.h"

namespace sg::cuda {

struct FlashTensor {
  uint16_t* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides
};

// Added to scores; for booleans, minus infinity where false.
struct FlashMask {
  const void* data = nullptr;
  Element element = Element::f32;                    // or bf16, f16, boolean
  int64_t batch = 0, head = 0, row = 0, column = 0;  // strides, 0 along broadcast axes
};

struct FlashArgs {
  FlashTensor query, key, value, out, grad_out, grad_query, grad_key, grad_value;
  FlashMask mask;                             // for the masked kernels
  float* sums = nullptr;                      // [batch, heads, queries], contiguous: natural logarithms
  float* delta = nullptr;                     // backward, same layout: out * grad_out summed for each row
  int64_t batches = 0, heads = 0, group = 1;  // group: query heads per key head
  int64_t queries = 0, keys = 0;
  int32_t depth = 0;
  float scale = 1;  // greater than 0
  bool causal = false;
  // Depth is a multiple of 8, and 8 elements of a row are an aligned 16-byte unit, in all operands of tiles.
  bool has_runs = false;
  bool out_has_runs = false;  // the same for `out`
};

// Rows that a block owns, with 16 or 32 per warp.
constexpr int flash_rows(int tiles) { return tiles * kTileRows * kWarps; }

SG_FN float flash_infinity() { return static_cast<float>(math::infinity()); }

SG_FN uint16_t* flash_row(const FlashTensor& t, int64_t batch, int64_t head, int64_t row) {
  return t.data + batch * t.batch + head * t.head + row * t.row;
}

// Which tiles of causal attention have the most work: the last ones for queries, the first ones for keys.
enum class Heaviest { first, last };

// The tile of rows and the head of a block. The heaviest tiles of all heads start first, so that no multiprocessor is
// left with a long one at the end.
struct FlashPlace {
  int64_t batch, head, first;
  SG_FN FlashPlace(int64_t block, int64_t batches, int64_t heads, int64_t rows, int64_t own, Heaviest heaviest) {
    const int64_t tiles = (rows + own - 1) / own, tile = block / (batches * heads);
    first = (heaviest == Heaviest::first ? tile : tiles - 1 - tile) * own;
    head = block % heads;
    batch = block / heads % batches;
  }
};

// Starts loading rows [first, first + rows) of a head into shared memory, [rows][D + 8], with zeros outside.
template <int D>
SG_FN void flash_load(const Block& block, const FlashArgs& args, const FlashTensor& t, int64_t batch, int64_t head,
                      int64_t first, int rows, int64_t all, uint16_t* to) {
  const uint16_t* from = flash_row(t, batch, head, first);
  block.each([&](int lane) {
    for (int i = lane; i < rows * (D / 8); i += kLanes) {
      const int row = i / (D / 8), column = i % (D / 8) * 8;
      const int there = first + row < all ? args.depth - column : 0;  // number of elements
      uint16_t* at = to + row * (D + 8) + column;
      const uint16_t* source = there > 0 ? from + row * t.row + column : t.data;
      if (args.has_runs) {
        copy_async<16>(at, source, there > 0 ? 16 : 0);
      } else {
        for (int j = 0; j < 8; j += 2) copy_async<4>(at + j, there > j ? source + j : t.data, there > j ? 4 : 0);
      }
    }
  });
}

// Starts loading elements [first, first + count) of a row of f32 into shared memory, with zeros after its end.
SG_FN void flash_load_line(const Block& block, const float* line, int64_t first, int count, int64_t all, float* to) {
  block.each([&](int lane) {
    for (int i = lane; i < count; i += kLanes) {
      const bool inside = first + i < all;
      copy_async<4>(to + i, inside ? line + first + i : line, inside ? 4 : 0);
    }
  });
}

// Rows of a warp as left operands, from memory: columns from 16 k on.
template <int R>
SG_FN LeftTile<R> flash_left(const FlashArgs& args, const FlashTensor& t, int64_t batch, int64_t head, int64_t first,
                             int64_t all, int k) {
  return load_left<R>([&](int row, int column) {
    const bool inside = first + row < all && 16 * k + column < args.depth;
    return inside ? *reinterpret_cast<const uint32_t*>(flash_row(t, batch, head, first + row) + 16 * k + column) : 0u;
  });
}
template <int R, int K>
SG_FN void flash_left_all(const FlashArgs& args, const FlashTensor& t, int64_t batch, int64_t head, int64_t first,
                          int64_t all, LeftTile<R> (&to)[K]) {
  SG_UNROLL for (int k = 0; k < K; ++k) to[k] = flash_left<R>(args, t, batch, head, first, all, k);
}

template <int R, int N>
SG_FN void flash_store(const FlashArgs& args, const FlashTensor& t, int64_t batch, int64_t head, int64_t first,
                       int64_t all, Tile<R, N>& x) {
  x.each_pair([&](int row, int column, uint32_t both) {
    if (first + row < all && column < args.depth)
      *reinterpret_cast<uint32_t*>(flash_row(t, batch, head, first + row) + column) = both;
  });
}

// Whether any of `rows` queries from `first` on that exist sees a key from `k` on.
SG_FN bool flash_sees(const FlashArgs& args, int64_t first, int rows, int64_t k) {
  return first < args.queries && (!args.causal || k < first + rows);
}

SG_FN float flash_multiply_add(float x, float by, float y) {
#ifdef __CUDACC__
  return __fmaf_rn(x, by, y);
#else
  return x * by + y;
#endif
}

template <class Raw>
SG_FN float flash_added(Raw x) {
  return value_of(x);
}
SG_FN float flash_added(Flag x) { return value_of(x) ? 0.0f : -flash_infinity(); }

struct FlashPair {
  int64_t query, key;
};

// The scores of a head, and the weights of keys computed from them. Without a mask, scores are plain products, and the
// scale is a factor of the exponent; with one they are scaled and masked first, because masks may contain arbitrarily
// large numbers.
template <bool kMasked>
struct FlashScores {
  const FlashArgs& args;
  int64_t mask = 0;  // offset of this head in the mask

  SG_FN FlashScores(const FlashArgs& of, int64_t batch, int64_t head)
      : args(of), mask(batch * of.mask.batch + head * of.mask.head) {}

  SG_FN bool sees(const FlashPair& at) const {
    return at.query < args.queries && at.key < args.keys && (!args.causal || at.key <= at.query);
  }
  // Whether the products of queries from q on and `keys` keys from k on are scores without further masking.
  SG_FN bool are_products(int64_t q, int64_t k, int keys) const {
    return !kMasked && k + keys <= args.keys && (!args.causal || k + keys - 1 <= q);
  }
  // Turns products into scores: minus infinity if the key is not seen. pair(row, column): the query and the key.
  template <class T, class Pair>
  SG_FN void take_products(T& tile, const Pair& pair) const {
    if constexpr (kMasked) {
      switch (args.mask.element) {
        case Element::f32: return add_mask<float>(tile, pair);
        case Element::bf16: return add_mask<Bf16>(tile, pair);
        case Element::f16: return add_mask<F16>(tile, pair);
        default: return add_mask<Flag>(tile, pair);
      }
    } else {
      tile.each([&](int row, int column, float& x) {
        if (!sees(pair(row, column))) x = -flash_infinity();
      });
    }
  }
  template <class Raw, class T, class Pair>
  SG_FN void add_mask(T& tile, const Pair& pair) const {
    const Raw* added = static_cast<const Raw*>(args.mask.data) + mask;
    tile.each([&](int row, int column, float& x) {
      const FlashPair at = pair(row, column);
      x = sees(at) ? flash_multiply_add(x, args.scale,
                                        flash_added(added[at.query * args.mask.row + at.key * args.mask.column]))
                   : -flash_infinity();
    });
  }
  SG_FN float natural(float score) const { return kMasked ? score : score * args.scale; }

  // e^(score - line), with `line` from below; in a row that sees nothing all weights are 0.
  SG_FN float weight(float score, float line) const {
    if constexpr (kMasked) return exp2_near((score - line) * kLog2E);
    return exp2_near(flash_multiply_add(score, args.scale * kLog2E, -line));
  }
  SG_FN float line_of_score(float most) const {
    if (most == -flash_infinity()) return 0;
    return kMasked ? most : most * (args.scale * kLog2E);
  }
  SG_FN float line_of_logarithm(float sum) const {
    if (sum == -flash_infinity()) return flash_infinity();
    return kMasked ? sum : sum * kLog2E;
  }
};

struct FlashLarger {
  SG_FN float operator()(float a, float b) const {
#ifdef __CUDACC__
    return fmaxf(a, b);  // a NaN shows up in the sum of weights
#else
    return a < b ? b : a;
#endif
  }
};
struct FlashSum {
  SG_FN float operator()(float a, float b) const { return a + b; }
};

}  // namespace sg::cuda
