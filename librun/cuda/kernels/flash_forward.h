// Attention by tiles, forward: a warp iterates over the keys with an online softmax, relative to the largest score so
// far.
#pragma once

#include "librun/cuda/kernels/flash.h"

namespace sg::cuda {

template <int D, int R>
struct FlashForward {
  LeftTile<R> query[D / 16];
  Tile<R, D / 8> out;
  RowNumbers<R> most, sum;  // by row: its largest score, and each lane's part of the sum of its weights
  bool is_far;              // some row is
};

// A warp takes kStep keys of a stage at a time, and keeps intermediate results in registers beside its queries.
template <int D, int R, int kKeys, int kStep, bool kMasked>
SG_FN void flash_forward(Block& block, const FlashArgs& args) {
  constexpr int kStage = kKeys * (D + 8);
  SG_SHARED(uint16_t, keys, 2 * kStage);
  SG_SHARED(uint16_t, values, 2 * kStage);
  const FlashPlace at(block.index(), args.batches, args.heads, args.queries, flash_rows(R), Heaviest::last);
  const int64_t key_head = at.head / args.group;
  const int last = at.first + flash_rows(R), end = args.causal && last < args.keys ? last : args.keys;
  const FlashScores<kMasked, FlashRows::queries> scores(args, at.batch, at.head);
  const auto seen = FlashSeen<R>::by_query(args.tiles, at.batch, at.head, at.first);
  auto next = [&](int k) {  // the next stage of which anything is seen
    if constexpr (kMasked)
      while (k < end && !seen.any(k, kKeys)) k += kKeys;
    return k;
  };
  auto load = [&](int k, int stage) {
    flash_load<D, kKeys>(block, args, {args.key, at.batch, key_head, args.keys}, k, keys + stage * kStage);
    flash_load<D, kKeys>(block, args, {args.value, at.batch, key_head, args.keys}, k, values + stage * kStage);
  };
  int k = next(0);
  if (k < end) load(k, 0);
  Warps<FlashForward<D, R>> state;
  block.warps(state, [&](int warp, FlashForward<D, R>& s) {
    flash_left_all(args, {args.query, at.batch, at.head, args.queries}, at.first + warp * kTileRows * R, s.query);
    scores.take_rows(s.query);
    s.out.fill(0);
    s.most.fill(-flash_infinity());
    s.sum.fill(0);
    s.is_far = false;
  });
  for (int stage = 0; k < end; stage ^= 1) {
    wait_for_copies();
    block.sync();  // this stage is loaded, and all are done with the other
    const int now = k;
    k = next(k + kKeys);
    if (k < end) load(k, stage ^ 1);
    block.warps(state, [&](int warp, FlashForward<D, R>& s) {
      const int first = at.first + warp * kTileRows * R;
      SG_ONE_BY_ONE for (int part = 0; part < kKeys; part += kStep) {
        const int key = now + part;
        if (!flash_sees(args, first, kTileRows * R, key)) return;
        const uint32_t kind = kMasked ? seen.kind(warp * kTileRows * R, key, kStep) : 0u;
        if (kMasked && !(kind & kSeen)) continue;
        const int from = stage * kStage + part * (D + 8);
        Tile<R, kStep / 8> weights;
        weights.fill(0);
        SG_UNROLL for (int d = 0; d < D / 16; ++d)
            multiply_tile<Lies::straight>(weights, s.query[d], keys + from, D + 8, 16 * d);
        scores.take_products(weights, first, key, kind);
        RowNumbers<R> most = s.most, line, factor;
        fold_columns(most, weights, FlashLarger());
        join_lanes(most, FlashLarger());
        bool moves = false;
        each_row_kept<R>([&](int row) {
          line.at(row) = scores.line_of_score(most.at(row));
          // The weight of the largest score is 1 up to rounding; the factor is exactly 1 if it stays the largest.
          factor.at(row) = most.at(row) == s.most.at(row) ? 1.0f : scores.weight(s.most.at(row), line.at(row));
          moves |= most.at(row) != s.most.at(row);
        });
        if (!kMasked && holds_for_any(moves)) {
          bool is_far = false;
          each_row_kept<R>([&](int row) { is_far |= flash_is_far(scores.natural(most.at(row))); });
          s.is_far = holds_for_any(is_far);
          if (s.is_far)
            each_row_kept<R>([&](int row) { factor.at(row) = scores.far_weight(s.most.at(row), most.at(row)); });
        }
        each_row_kept<R>([&](int row) { s.sum.at(row) *= factor.at(row); });
        s.most = most;
        if (!kMasked && s.is_far) weights.each([&](int row, int, float& x) { x = scores.far_weight(x, most.at(row)); });
        else weights.each([&](int row, int, float& x) { x = scores.weight(x, line.at(row)); });
        fold_columns(s.sum, weights, FlashSum());
        if (holds_for_any(moves)) s.out.each([&](int row, int, float& x) { x *= factor.at(row); });
        SG_UNROLL for (int i = 0; i < kStep / 16; ++i)
            multiply_tile<Lies::turned>(s.out, weights.left(i), values + from, D + 8, 16 * i);
      }
    });
  }
  block.warps(state, [&](int warp, FlashForward<D, R>& s) {
    const int first = at.first + warp * kTileRows * R;
    join_lanes(s.sum, FlashSum());
    s.out.each([&](int row, int, float& x) { x = s.sum.at(row) == 0 ? 0.0f : x / s.sum.at(row); });
    flash_store(args, {args.out, at.batch, at.head, args.queries}, first, s.out);
    if (args.sums)
      each_row<R>([&](int row) {
        if (first + row < args.queries)
          args.sums[(at.batch * args.heads + at.head) * args.queries + first + row] =
              s.sum.at(row) == 0 ? -flash_infinity() : scores.natural(s.most.at(row)) + math::log(s.sum.at(row));
      });
  });
}

SG_KERNEL(flash_forward_64, FlashArgs) { flash_forward<64, 1, 64, 64, false>(block, args); }
SG_KERNEL(flash_forward_64_wide, FlashArgs) { flash_forward<64, 2, 64, 64, false>(block, args); }
SG_KERNEL(flash_forward_64_masked, FlashArgs) { flash_forward<64, 1, 64, 64, true>(block, args); }
SG_KERNEL(flash_forward_64_wide_masked, FlashArgs) { flash_forward<64, 2, 64, 64, true>(block, args); }
SG_KERNEL(flash_forward_128, FlashArgs) { flash_forward<128, 1, 32, 32, false>(block, args); }
SG_KERNEL(flash_forward_128_wide, FlashArgs) { flash_forward<128, 2, 32, 16, false>(block, args); }
SG_KERNEL(flash_forward_128_masked, FlashArgs) { flash_forward<128, 1, 32, 32, true>(block, args); }

}  // namespace sg::cuda
