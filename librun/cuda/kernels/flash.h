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
#include "librun/cuda/kernels/flash_mask.h"
#include "librun/cuda/kernels/instructions.h"
#include "librun/cuda/kernels/tile.h"

namespace sg::cuda {

struct FlashTensor {
  uint16_t* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides
};

struct FlashArgs {
  FlashTensor query, key, value, out, grad_out, grad_query, grad_key, grad_value;
  FlashMask mask;                             // for the masked kernels,
  FlashTiles tiles;                           // and its tiles
  float* sums = nullptr;                      // [batch, heads, queries], contiguous: natural logarithms
  float* delta = nullptr;                     // backward, same layout: out * grad_out summed for each row
  int64_t batches = 0, heads = 0, group = 1;  // group: query heads per key head
  int32_t queries = 0, keys = 0, depth = 0;   // like places of rows in 32 bits: registers are few
  float scale = 1;                            // greater than 0
  // With a mask, the scale is a factor of the rows that a block keeps where that is exact, else of the products.
  float scale_of_rows = 1, scale_of_products = 1;
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
  int batch, head, first;
  SG_FN FlashPlace(int64_t block, int64_t batches, int64_t heads, int rows, int own, Heaviest heaviest) {
    const int tiles = (rows + own - 1) / own, tile = static_cast<int>(block / (batches * heads));
    first = (heaviest == Heaviest::first ? tile : tiles - 1 - tile) * own;
    head = static_cast<int>(block % heads);
    batch = static_cast<int>(block / heads % batches);
  }
};

// One head of a tensor: its rows, [all, depth].
struct FlashHead {
  const FlashTensor& tensor;
  int64_t batch, head;
  int all;
  SG_FN uint16_t* row(int64_t row) const { return flash_row(tensor, batch, head, row); }
};

// Starts loading rows [first, first + kRows) of a head into shared memory, [kRows][D + 8], with zeros outside. A lane
// has 8 columns of every kStep-th row.
template <int D, int kRows>
SG_FN void flash_load(const Block& block, const FlashArgs& args, const FlashHead& of, int first, uint16_t* to) {
  constexpr int kUnits = D / 8, kStep = kLanes / kUnits;
  static_assert(kRows % kStep == 0);
  block.each([&](int lane) {
    const int column = lane % kUnits * 8, down = lane / kUnits;
    const uint16_t* const from = of.row(first + down) + column;
    SG_UNROLL for (int row = 0; row < kRows; row += kStep) {
      const int there = first + down + row < of.all ? args.depth - column : 0;  // number of elements
      const uint16_t* const source = there > 0 ? from + row * of.tensor.row : of.tensor.data;
      uint16_t* const at = to + (down + row) * (D + 8) + column;
      if (args.has_runs) {
        copy_async<16>(at, source, there > 0 ? 16 : 0);
      } else {
        for (int j = 0; j < 8; j += 2)
          copy_async<4>(at + j, there > j ? source + j : of.tensor.data, there > j ? 4 : 0);
      }
    }
  });
}

// Starts loading elements [first, first + kCount) of a row of f32 into shared memory, with zeros after its end.
template <int kCount>
SG_FN void flash_load_line(const Block& block, const float* line, int first, int all, float* to) {
  static_assert(kCount <= kLanes);
  block.each([&](int lane) {
    if (lane >= kCount) return;
    const bool inside = first + lane < all;
    copy_async<4>(to + lane, inside ? line + first + lane : line, inside ? 4 : 0);
  });
}

// Rows of a warp as left operands, from memory: columns from 16 k on.
template <int R>
SG_FN LeftTile<R> flash_left(const FlashArgs& args, const FlashHead& of, int first, int k) {
  return load_left<R>([&](int row, int column) {
    const bool inside = first + row < of.all && 16 * k + column < args.depth;
    return inside ? *reinterpret_cast<const uint32_t*>(of.row(first + row) + 16 * k + column) : 0u;
  });
}
template <int R, int K>
SG_FN void flash_left_all(const FlashArgs& args, const FlashHead& of, int first, LeftTile<R> (&to)[K]) {
  SG_UNROLL for (int k = 0; k < K; ++k) to[k] = flash_left<R>(args, of, first, k);
}

template <int R, int N>
SG_FN void flash_store(const FlashArgs& args, const FlashHead& of, int first, Tile<R, N>& x) {
  x.each_pair([&](int row, int column, uint32_t both) {
    if (first + row < of.all && column < args.depth) *reinterpret_cast<uint32_t*>(of.row(first + row) + column) = both;
  });
}

// Whether any of `rows` queries from `first` on that exist sees a key from `k` on.
SG_FN bool flash_sees(const FlashArgs& args, int first, int rows, int k) {
  return first < args.queries && (!args.causal || k < first + rows);
}

// Whether a row's largest score, or the logarithm of its sum, is so large that its rounding, a difference of exponents,
// would be a factor of the row's weights that shows. Rows that see nothing are not.
SG_FN bool flash_is_far(float x) { return (x > 1024 || x < -1024) && x != -flash_infinity(); }

// Which side the rows of a tile of scores are; its columns are the other one.
enum class FlashRows : uint8_t { queries, keys };

// The scores of a head, and the weights of keys computed from them. Without a mask, scores are plain products, and the
// scale is a factor of the exponent; with one they are scaled and masked first, because masks may contain arbitrarily
// large numbers.
template <bool kMasked, FlashRows kRows>
struct FlashScores {
  const FlashArgs& args;
  int64_t mask = 0;  // offset of this head in the mask

  SG_FN FlashScores(const FlashArgs& of, int64_t batch, int64_t head)
      : args(of), mask(batch * of.mask.batch + head * of.mask.head) {}

  // Turns the products of queries from q on and keys from k on into scores: minus infinity if the key is not seen.
  // kind: what the mask has there.
  template <int R, int N>
  SG_FN void take_products(Tile<R, N>& tile, int q, int k, uint32_t kind) const {
    constexpr bool kQueriesDown = kRows == FlashRows::queries;
    constexpr int kDown = R * kTileRows, kAcross = 8 * N;
    constexpr int kQueries = kQueriesDown ? kDown : kAcross, kKeys = kQueriesDown ? kAcross : kDown;
    const bool is_whole = k + kKeys <= args.keys && (!kMasked || q + kQueries <= args.queries);
    if constexpr (kMasked) {
      if (kind & kAdds) add_mask(tile, q, k, is_whole);
      else if (args.scale_of_products != 1) tile.each([&](int, int, float& x) { x *= args.scale_of_products; });
    }
    if (is_whole && (!args.causal || k + kKeys - 1 <= q)) return;
    tile.each([&](int row, int column, float& x) {
      const int query = q + (kQueriesDown ? row : column), key = k + (kQueriesDown ? column : row);
      if (query >= args.queries || key >= args.keys || (args.causal && key > query)) x = -flash_infinity();
    });
  }
  template <int R, int N>
  SG_FN void add_mask(Tile<R, N>& tile, int q, int k, bool is_whole) const {
    switch (args.mask.element) {
      case Element::f32: return add<float>(tile, q, k, is_whole);
      case Element::bf16: return add<Bf16>(tile, q, k, is_whole);
      case Element::f16: return add<F16>(tile, q, k, is_whole);
      default: return add<Flag>(tile, q, k, is_whole);
    }
  }
  // What lies outside of the mask gets numbers of its last query or key.
  template <class Raw, int R, int N>
  SG_FN void add(Tile<R, N>& tile, int q, int k, bool is_whole) const {
    const Raw* added = static_cast<const Raw*>(args.mask.data) + mask;
    auto of_query = [&](int i) { return added + (q + i < args.queries ? q + i : args.queries - 1) * args.mask.row; };
    auto of_key = [&](int i) {
      return static_cast<uint32_t>(k + i < args.keys ? k + i : args.keys - 1) * static_cast<uint32_t>(args.mask.column);
    };
    auto score = [&](float x, float y) { return multiply_add(x, args.scale_of_products, y); };
    if constexpr (kRows == FlashRows::keys) {
      tile.each([&](int row, int column, float& x) { x = score(x, flash_added(of_query(column)[of_key(row)])); });
    } else if (args.mask.has_pairs && is_whole) {
      tile.each_two([&](int row, int column, float& x, float& y) {
        const FlashTwo two = flash_two(added + (q + row) * args.mask.row + k + column);
        x = score(x, two.first);
        y = score(y, two.second);
      });
    } else {
      tile.each([&](int row, int column, float& x) { x = score(x, flash_added(of_query(row)[of_key(column)])); });
    }
  }
  // Gives the rows that the block keeps, an operand of the products, their part of the scale.
  template <int R, int K>
  SG_FN void take_rows(LeftTile<R> (&rows)[K]) const {
    if constexpr (kMasked) {
      if (args.scale_of_rows == 1) return;
      SG_UNROLL for (int k = 0; k < K; ++k) scale_left(rows[k], args.scale_of_rows);
    }
  }
  SG_FN float natural(float score) const { return kMasked ? score : score * args.scale; }

  // e^(score - line), with `line` from below; in a row that sees nothing all weights are 0.
  SG_FN float weight(float score, float line) const {
    if constexpr (kMasked) return exp2_near((score - line) * kLog2E);
    return exp2_near(multiply_add(score, args.scale * kLog2E, -line));
  }
  SG_FN float line_of_score(float most) const {
    if (most == -flash_infinity()) return 0;
    return kMasked ? most : most * (args.scale * kLog2E);
  }
  SG_FN float line_of_logarithm(float sum) const {
    if (sum == -flash_infinity()) return flash_infinity();
    return kMasked ? sum : sum * kLog2E;
  }

  // The same without a mask for rows that are far, or share a warp with one: differences are taken before anything is
  // rounded, or of numbers that are rounded alike, as masked scores are.
  SG_FN float far_weight(float score, float most) const {
    if (most == -flash_infinity()) return 0;
    return exp2_near((score - most) * (args.scale * kLog2E));
  }
  // The logarithm is the forward's natural(largest score) + log(sum of weights), rounded, so none of its row is larger:
  // but for a product that was added up in another order, which must not become a weight above 1.
  SG_FN float far_weight_of_logarithm(float score, float sum) const {
    if (sum == -flash_infinity()) return 0;
    const float above = natural(score) - sum;
    return exp2_near((above > 0 ? 0.0f : above) * kLog2E);
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
