// Attention of bf16 by tiles: scores exist for a tile of queries and keys at a time, in registers; nothing of their
// size is written to memory. Sums are in f32, in one order: the same run gives the same bits.
//
// Forward    A warp owns 16 queries and walks over the keys, 64 at a time: softmax as it goes, of the largest score so
//            far.
// Backward   In two kernels, so that nothing is added up by atomics: of 16 keys a warp for the gradients of key and
//            value, over the queries of all heads that share them; of 16 queries a warp for the gradient of the query.
//            Both compute the scores again, from the logarithms of the sums.
// Memory     D is the depth of a head, rounded up to 64 or 128. Tensors are [batch, heads, rows, depth] with depth next
//            to each other and pairs of them aligned.
#pragma once

#include "librun/cuda/kernels/tile.h"
#include "librun/work/math.h"

namespace sg::cuda {

struct FlashTensor {
  uint16_t* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides
};

struct FlashArgs {
  FlashTensor query, key, value, out, grad_out, grad_query, grad_key, grad_value;
  float* sums = nullptr;                      // [batch, heads, queries], contiguous: logarithms, natural
  float* delta = nullptr;                     // backward, likewise: of each row, out * grad_out summed up
  int64_t batches = 0, heads = 0, group = 1;  // group: query heads of a key head
  int64_t queries = 0, keys = 0;
  int32_t depth = 0;
  float scale = 1;
  bool causal = false;
};

inline constexpr int kFlashRows = kTileRows * kWarps;   // that a block owns
inline constexpr int kFlashKeys = 64, kFlashStep = 32;  // columns of scores at a time: forward, backward

SG_FN uint16_t* flash_row(const FlashTensor& t, int64_t batch, int64_t head, int64_t row) {
  return t.data + batch * t.batch + head * t.head + row * t.row;
}

// Which tile of rows of which head a block has.
struct FlashPlace {
  int64_t batch, head, first;
  SG_FN FlashPlace(int64_t block, int64_t heads, int64_t rows) {
    const int64_t tiles = (rows + kFlashRows - 1) / kFlashRows;
    // The last tiles of causal attention have most to do: they come first.
    first = (tiles - 1 - block % tiles) * kFlashRows;
    head = block / tiles % heads;
    batch = block / tiles / heads;
  }
};

// Two neighbours of a row of memory; zeros outside.
SG_FN uint32_t flash_pair(const uint16_t* row, int depth, int column, bool inside) {
  return inside && column < depth ? *reinterpret_cast<const uint32_t*>(row + column) : 0u;
}

// Rows [first, first + rows) to shared memory, [rows][D + 8] and, where `turned` is there, also [D][rows + 8].
template <int D>
SG_FN void flash_load(const Block& block, const FlashTensor& t, int64_t batch, int64_t head, int64_t first, int rows,
                      int64_t all, int depth, uint16_t* straight, uint16_t* turned) {
  block.each([&](int lane) {
    for (int i = lane; i < rows * (D / 2); i += kLanes) {
      const int row = i / (D / 2), column = i % (D / 2) * 2;
      const bool inside = first + row < all;
      const uint32_t both =
          flash_pair(inside ? flash_row(t, batch, head, first + row) : nullptr, depth, column, inside);
      if (straight) *reinterpret_cast<uint32_t*>(straight + row * (D + 8) + column) = both;
      if (!turned) continue;
      turned[column * (rows + 8) + row] = static_cast<uint16_t>(both);
      turned[(column + 1) * (rows + 8) + row] = static_cast<uint16_t>(both >> 16);
    }
  });
}

// Rows of a warp as left operands, from global memory: columns 16 k on.
SG_FN LeftTile flash_left(const FlashTensor& t, int64_t batch, int64_t head, int64_t first, int64_t all, int depth,
                          int k) {
  return load_left([&](int row, int column) {
    const bool inside = first + row < all;
    return flash_pair(inside ? flash_row(t, batch, head, first + row) : nullptr, depth, 16 * k + column, inside);
  });
}

template <int N>
SG_FN void flash_store(const FlashTensor& t, int64_t batch, int64_t head, int64_t first, int64_t all, int depth,
                       Tile<N>& x) {
  x.each([&](int row, int column, float& y) {
    if (first + row < all && column < depth) flash_row(t, batch, head, first + row)[column] = to_brain(y);
  });
}

// The device's own, to 2 ulp: less than what rounding to bf16 leaves.
SG_FN float flash_exp(float x) {
#ifdef __CUDACC__
  return __expf(x);
#else
  return math::exp(x);
#endif
}

struct FlashLarger {
  SG_FN float operator()(float a, float b) const { return a != a ? a : (a < b || b != b) ? b : a; }
};
struct FlashSum {
  SG_FN float operator()(float a, float b) const { return a + b; }
};

// --- forward ---

template <int D>
struct FlashRows {
  Tile<D / 8> out;
  RowNumbers most, sum;
};

template <int D>
SG_FN void flash_forward(Block& block, const FlashArgs& args) {
  SG_SHARED(uint16_t, keys, kFlashKeys * (D + 8));
  SG_SHARED(uint16_t, values, D * (kFlashKeys + 8));  // turned
  const FlashPlace at(block.index(), args.heads, args.queries);
  const int64_t key_head = at.head / args.group;
  const int64_t last = at.first + kFlashRows;
  const int64_t end = args.causal && last < args.keys ? last : args.keys;
  Warps<FlashRows<D>> state;
  block.warps(state, [&](int, FlashRows<D>& s) {
    s.out.fill(0);
    s.most.fill(static_cast<float>(-math::infinity()));
    s.sum.fill(0);
  });
  for (int64_t k = 0; k < end; k += kFlashKeys) {
    flash_load<D>(block, args.key, at.batch, key_head, k, kFlashKeys, args.keys, args.depth, keys, nullptr);
    flash_load<D>(block, args.value, at.batch, key_head, k, kFlashKeys, args.keys, args.depth, nullptr, values);
    block.sync();
    block.warps(state, [&](int warp, FlashRows<D>& s) {
      const int64_t first = at.first + warp * kTileRows;
      Tile<kFlashKeys / 8> scores;
      scores.fill(0);
      for (int d = 0; d < D / 16; ++d)
        multiply_tile(scores, flash_left(args.query, at.batch, at.head, first, args.queries, args.depth, d), keys,
                      D + 8, 16 * d);
      scores.each([&](int row, int column, float& x) {
        const bool seen = k + column < args.keys && (!args.causal || k + column <= first + row);
        x = seen ? x * args.scale : static_cast<float>(-math::infinity());
      });
      RowNumbers most = reduce_tile(scores, static_cast<float>(-math::infinity()), FlashLarger()), shift, factor;
      each_row_kept([&](int row) {
        const float now = FlashLarger()(s.most.at(row), most.at(row));
        shift.at(row) = now == static_cast<float>(-math::infinity()) ? 0.0f : now;
        factor.at(row) = flash_exp(s.most.at(row) - shift.at(row));
        s.most.at(row) = now;
      });
      scores.each([&](int row, int, float& x) { x = flash_exp(x - shift.at(row)); });
      RowNumbers sum = reduce_tile(scores, 0.0f, FlashSum());
      each_row_kept([&](int row) { s.sum.at(row) = s.sum.at(row) * factor.at(row) + sum.at(row); });
      s.out.each([&](int row, int, float& x) { x *= factor.at(row); });
      for (int i = 0; i < kFlashKeys / 16; ++i) multiply_tile(s.out, scores.left(i), values, kFlashKeys + 8, 16 * i);
    });
    block.sync();
  }
  block.warps(state, [&](int warp, FlashRows<D>& s) {
    const int64_t first = at.first + warp * kTileRows;
    s.out.each([&](int row, int, float& x) { x = s.sum.at(row) == 0 ? 0.0f : x / s.sum.at(row); });
    flash_store(args.out, at.batch, at.head, first, args.queries, args.depth, s.out);
    if (args.sums)
      each_row([&](int row) {
        if (first + row < args.queries)
          args.sums[(at.batch * args.heads + at.head) * args.queries + first + row] =
              s.sum.at(row) == 0 ? static_cast<float>(-math::infinity()) : s.most.at(row) + math::log(s.sum.at(row));
      });
  });
}

SG_KERNEL(flash_forward_64, FlashArgs) { flash_forward<64>(block, args); }
SG_KERNEL(flash_forward_128, FlashArgs) { flash_forward<128>(block, args); }

// --- backward ---

// A lane a row: its sum of out * grad_out.
SG_KERNEL(flash_delta, FlashArgs) {
  block.each([&](int lane) {
    const int64_t rows = args.batches * args.heads * args.queries;
    for (int64_t i = block.index() * kLanes + lane; i < rows; i += block.count() * kLanes) {
      const int64_t row = i % args.queries, head = i / args.queries % args.heads, batch = i / args.queries / args.heads;
      const uint16_t *x = flash_row(args.out, batch, head, row), *g = flash_row(args.grad_out, batch, head, row);
      float sum = 0;
      for (int d = 0; d < args.depth; ++d) sum += from_brain(x[d]) * from_brain(g[d]);
      args.delta[i] = sum;
    }
  });
}

// exp(score - logarithm of its row's sum): 0 where it is masked, and in rows where all are.
SG_FN float flash_weight(const FlashArgs& args, float score, float sum, int64_t q, int64_t k) {
  const bool seen =
      q < args.queries && k < args.keys && (!args.causal || k <= q) && sum > static_cast<float>(-math::infinity());
  return seen ? flash_exp(score * args.scale - sum) : 0.0f;
}

template <int D>
struct FlashKeyRows {
  Tile<D / 8> key, value;
};

template <int D>
SG_FN void flash_backward_keys(Block& block, const FlashArgs& args) {
  SG_SHARED(uint16_t, queries, kFlashStep * (D + 8));
  SG_SHARED(uint16_t, grads, kFlashStep * (D + 8));
  SG_SHARED(uint16_t, turned, D * (kFlashStep + 8));  // of the queries, then of the gradients
  const int64_t key_heads = args.heads / args.group;
  const FlashPlace at(block.index(), key_heads, args.keys);
  Warps<FlashKeyRows<D>> state;
  Warps<Tile<kFlashStep / 8>> weights;
  block.warps(state, [&](int, FlashKeyRows<D>& s) {
    s.key.fill(0);
    s.value.fill(0);
  });
  for (int64_t head = at.head * args.group; head < (at.head + 1) * args.group; ++head) {
    const float* sums = args.sums + (at.batch * args.heads + head) * args.queries;
    const float* delta = args.delta + (at.batch * args.heads + head) * args.queries;
    for (int64_t q = args.causal ? at.first / kFlashStep * kFlashStep : 0; q < args.queries; q += kFlashStep) {
      flash_load<D>(block, args.query, at.batch, head, q, kFlashStep, args.queries, args.depth, queries, nullptr);
      flash_load<D>(block, args.grad_out, at.batch, head, q, kFlashStep, args.queries, args.depth, grads, turned);
      block.sync();
      // Weights, keys down, queries across; the values' gradient is weights @ grad_out.
      block.warps(weights, [&](int warp, Tile<kFlashStep / 8>& p) {
        const int64_t first = at.first + warp * kTileRows;
        p.fill(0);
        for (int d = 0; d < D / 16; ++d)
          multiply_tile(p, flash_left(args.key, at.batch, at.head, first, args.keys, args.depth, d), queries, D + 8,
                        16 * d);
        p.each([&](int row, int column, float& x) {
          const int64_t to = q + column;
          x = flash_weight(args, x, to < args.queries ? sums[to] : 0.0f, to, first + row);
        });
      });
      block.warps(state, [&](int warp, FlashKeyRows<D>& s) {
        const Tile<kFlashStep / 8>& p = of_warp(weights, warp);
        for (int i = 0; i < kFlashStep / 16; ++i) multiply_tile(s.value, p.left(i), turned, kFlashStep + 8, 16 * i);
      });
      block.sync();
      flash_load<D>(block, args.query, at.batch, head, q, kFlashStep, args.queries, args.depth, nullptr, turned);
      block.sync();
      block.warps(state, [&](int warp, FlashKeyRows<D>& s) {
        Tile<kFlashStep / 8>& p = of_warp(weights, warp);
        const int64_t first = at.first + warp * kTileRows;
        Tile<kFlashStep / 8> slopes;
        slopes.fill(0);
        for (int d = 0; d < D / 16; ++d)
          multiply_tile(slopes, flash_left(args.value, at.batch, at.head, first, args.keys, args.depth, d), grads,
                        D + 8, 16 * d);
        slopes.each([&](int, int column, float& x) { x -= q + column < args.queries ? delta[q + column] : 0.0f; });
        times(slopes, p, args.scale);
        for (int i = 0; i < kFlashStep / 16; ++i) multiply_tile(s.key, slopes.left(i), turned, kFlashStep + 8, 16 * i);
      });
      block.sync();
    }
  }
  block.warps(state, [&](int warp, FlashKeyRows<D>& s) {
    const int64_t first = at.first + warp * kTileRows;
    if (args.grad_key.data) flash_store(args.grad_key, at.batch, at.head, first, args.keys, args.depth, s.key);
    if (args.grad_value.data) flash_store(args.grad_value, at.batch, at.head, first, args.keys, args.depth, s.value);
  });
}

template <int D>
SG_FN void flash_backward_queries(Block& block, const FlashArgs& args) {
  SG_SHARED(uint16_t, keys, kFlashStep * (D + 8));
  SG_SHARED(uint16_t, values, kFlashStep * (D + 8));
  SG_SHARED(uint16_t, turned, D * (kFlashStep + 8));  // of the keys
  const FlashPlace at(block.index(), args.heads, args.queries);
  const int64_t key_head = at.head / args.group, last = at.first + kFlashRows;
  const int64_t end = args.causal && last < args.keys ? last : args.keys;
  const float* sums = args.sums + (at.batch * args.heads + at.head) * args.queries;
  const float* delta = args.delta + (at.batch * args.heads + at.head) * args.queries;
  Warps<Tile<D / 8>> state;
  block.warps(state, [&](int, Tile<D / 8>& s) { s.fill(0); });
  for (int64_t k = 0; k < end; k += kFlashStep) {
    flash_load<D>(block, args.key, at.batch, key_head, k, kFlashStep, args.keys, args.depth, keys, turned);
    flash_load<D>(block, args.value, at.batch, key_head, k, kFlashStep, args.keys, args.depth, values, nullptr);
    block.sync();
    block.warps(state, [&](int warp, Tile<D / 8>& s) {
      const int64_t first = at.first + warp * kTileRows;
      Tile<kFlashStep / 8> weights, slopes;
      weights.fill(0);
      slopes.fill(0);
      for (int d = 0; d < D / 16; ++d) {
        multiply_tile(weights, flash_left(args.query, at.batch, at.head, first, args.queries, args.depth, d), keys,
                      D + 8, 16 * d);
        multiply_tile(slopes, flash_left(args.grad_out, at.batch, at.head, first, args.queries, args.depth, d), values,
                      D + 8, 16 * d);
      }
      weights.each([&](int row, int column, float& x) {
        const int64_t q = first + row;
        x = flash_weight(args, x, q < args.queries ? sums[q] : 0.0f, q, k + column);
      });
      slopes.each([&](int row, int, float& x) { x -= first + row < args.queries ? delta[first + row] : 0.0f; });
      times(slopes, weights, args.scale);
      for (int i = 0; i < kFlashStep / 16; ++i) multiply_tile(s, slopes.left(i), turned, kFlashStep + 8, 16 * i);
    });
    block.sync();
  }
  block.warps(state, [&](int warp, Tile<D / 8>& s) {
    flash_store(args.grad_query, at.batch, at.head, at.first + warp * kTileRows, args.queries, args.depth, s);
  });
}

SG_KERNEL(flash_backward_keys_64, FlashArgs) { flash_backward_keys<64>(block, args); }
SG_KERNEL(flash_backward_keys_128, FlashArgs) { flash_backward_keys<128>(block, args); }
SG_KERNEL(flash_backward_queries_64, FlashArgs) { flash_backward_queries<64>(block, args); }
SG_KERNEL(flash_backward_queries_128, FlashArgs) { flash_backward_queries<128>(block, args); }

}  // namespace sg::cuda
