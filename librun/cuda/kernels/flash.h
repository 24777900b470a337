// Attention of bf16 by tiles: scores exist for a tile of queries and keys at a time, in registers; nothing of their
// size is written to memory. Sums are in f32, in one order: the same run gives the same bits.
//
// A block owns rows of queries (flash_forward.h) or of either side (flash_backward.h), a warp 16 or 32 of them, in
// registers, and walks over the other side. What it meets there lies in shared memory twice: while one stage is used,
// the next one is on its way (async.h), so lanes meet once a stage.
//
// Memory  D is the depth of a head, rounded up to 64 or 128. Tensors are [batch, heads, rows, depth] with depth next
//         to each other and pairs of them aligned.
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

// What is added to scores; of booleans, minus infinity where they are false.
struct FlashMask {
  const void* data = nullptr;
  Element element = Element::f32;                    // or bf16, f16, boolean
  int64_t batch = 0, head = 0, row = 0, column = 0;  // strides, 0 where it is the same along all
};

struct FlashArgs {
  FlashTensor query, key, value, out, grad_out, grad_query, grad_key, grad_value;
  FlashMask mask;                             // for the kernels that are masked
  float* sums = nullptr;                      // [batch, heads, queries], contiguous: logarithms, natural
  float* delta = nullptr;                     // backward, likewise: of each row, out * grad_out summed up
  int64_t batches = 0, heads = 0, group = 1;  // group: query heads of a key head
  int64_t queries = 0, keys = 0;
  int32_t depth = 0;
  float scale = 1;  // above 0
  bool causal = false;
  // Depth is a multiple of 8, and 8 numbers of a row lie in 16 bytes, of all that tiles are made of.
  bool has_runs = false;
  bool out_has_runs = false;  // likewise
};

// Rows that a block owns, for 16 or 32 a warp.
constexpr int flash_rows(int tiles) { return tiles * kTileRows * kWarps; }

SG_FN float flash_infinity() { return static_cast<float>(math::infinity()); }

SG_FN uint16_t* flash_row(const FlashTensor& t, int64_t batch, int64_t head, int64_t row) {
  return t.data + batch * t.batch + head * t.head + row * t.row;
}

// Which tiles of causal attention have most to do: the last ones of queries, the first ones of keys.
enum class Heaviest { first, last };

// Which tile of rows of which head a block has. The heaviest tiles of all heads start first, so that no multiprocessor
// is left with a long one in the end.
struct FlashPlace {
  int64_t batch, head, first;
  SG_FN FlashPlace(int64_t block, int64_t batches, int64_t heads, int64_t rows, int64_t own, Heaviest heaviest) {
    const int64_t tiles = (rows + own - 1) / own, tile = block / (batches * heads);
    first = (heaviest == Heaviest::first ? tile : tiles - 1 - tile) * own;
    head = block % heads;
    batch = block / heads % batches;
  }
};

// Rows [first, first + rows) of a head to shared memory, [rows][D + 8], zeros outside: on their way.
template <int D>
SG_FN void flash_load(const Block& block, const FlashArgs& args, const FlashTensor& t, int64_t batch, int64_t head,
                      int64_t first, int rows, int64_t all, uint16_t* to) {
  const uint16_t* from = flash_row(t, batch, head, first);
  block.each([&](int lane) {
    for (int i = lane; i < rows * (D / 8); i += kLanes) {
      const int row = i / (D / 8), column = i % (D / 8) * 8;
      const int there = first + row < all ? args.depth - column : 0;  // numbers
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

// Numbers [first, first + count) of a row of f32 to shared memory, zeros behind its end: on their way.
SG_FN void flash_load_line(const Block& block, const float* line, int64_t first, int count, int64_t all, float* to) {
  block.each([&](int lane) {
    for (int i = lane; i < count; i += kLanes) {
      const bool inside = first + i < all;
      copy_async<4>(to + i, inside ? line + first + i : line, inside ? 4 : 0);
    }
  });
}

// Rows of a warp as left operands, from memory: columns 16 k on.
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

// Whether any of so many queries from `first` on, if they are there, sees a key from `k` on.
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

// Scores of a head and what they make of a key: its weight. Without a mask scores are products, and the scale is a
// factor of the exponent; with one they are scaled and masked first, as masks may be as large as numbers go.
template <bool kMasked>
struct FlashScores {
  const FlashArgs& args;
  int64_t mask = 0;  // of this head: where in the mask it begins

  SG_FN FlashScores(const FlashArgs& of, int64_t batch, int64_t head)
      : args(of), mask(batch * of.mask.batch + head * of.mask.head) {}

  SG_FN bool sees(const FlashPair& at) const {
    return at.query < args.queries && at.key < args.keys && (!args.causal || at.key <= at.query);
  }
  // Whether products of queries from q on and so many keys from k on are scores.
  SG_FN bool are_products(int64_t q, int64_t k, int keys) const {
    return !kMasked && k + keys <= args.keys && (!args.causal || k + keys - 1 <= q);
  }
  // Products as scores: minus infinity where the key is not seen. pair(row, column): whose they are.
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

  // e^(score - line), of a line as it is below; nothing has a weight behind one of a row that sees nothing.
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
    return fmaxf(a, b);  // of a NaN the sum of weights takes note
#else
    return a < b ? b : a;
#endif
  }
};
struct FlashSum {
  SG_FN float operator()(float a, float b) const { return a + b; }
};

}  // namespace sg::cuda
