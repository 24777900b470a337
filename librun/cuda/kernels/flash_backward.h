// Attention by tiles, backward, in two kernels that need no atomics: one with 16 keys per warp for the gradients of key
// and value, over the queries of all heads that share them; one with 16 or 32 queries per warp for the gradient of the
// query. Both recompute the scores, using the logarithms of the sums.
#pragma once

#include "librun/cuda/kernels/flash.h"

namespace sg::cuda {

// Sums out * grad_out of a row with 4 lanes, 8 or 2 elements at a time.
inline constexpr int kDeltaLanes = 4;

template <int kWords>
SG_FN float flash_delta_part(const FlashArgs& args, int64_t batch, int64_t head, int64_t row, int part) {
  using Words = FlashWords<kWords>;
  const auto* x = reinterpret_cast<const Words*>(flash_row(args.out, batch, head, row));
  const auto* g = reinterpret_cast<const Words*>(flash_row(args.grad_out, batch, head, row));
  float sum = 0;
  for (int d = part; d < args.depth / (2 * kWords); d += kDeltaLanes) {
    const Words a = x[d], b = g[d];
    SG_UNROLL for (int i = 0; i < kWords; ++i) {
      sum += number(a.of[i] << 16) * number(b.of[i] << 16);
      sum += number(a.of[i] & 0xFFFF0000u) * number(b.of[i] & 0xFFFF0000u);
    }
  }
  return sum;
}

SG_KERNEL(flash_delta, FlashArgs) {
  constexpr int kRows = kLanes / kDeltaLanes;  // rows of a block at a time
  SG_SHARED(float, parts, kLanes);
  const int64_t rows = args.batches * args.heads * args.queries;
  for (int64_t first = block.index() * kRows; first < rows; first += block.count() * kRows) {
    block.each([&](int lane) {
      const int64_t i = first + lane / kDeltaLanes;
      if (i >= rows) return;
      const int64_t row = i % args.queries, head = i / args.queries % args.heads, batch = i / args.queries / args.heads;
      const int part = lane % kDeltaLanes;
      parts[lane] = args.has_runs && args.out_has_runs ? flash_delta_part<4>(args, batch, head, row, part)
                                                       : flash_delta_part<1>(args, batch, head, row, part);
    });
    block.sync();
    block.each([&](int lane) {
      if (lane >= kRows || first + lane >= rows) return;
      float sum = 0;
      SG_UNROLL for (int part = 0; part < kDeltaLanes; ++part) sum += parts[lane * kDeltaLanes + part];
      args.delta[first + lane] = sum;
    });
    block.sync();
  }
}

// --- keys and values ---

template <int D, int R>
struct FlashKeys {
  LeftTile<R> key[D / 16], value[D / 16];
  Tile<R, D / 8> grad_key, grad_value;
};

// A stage of queries in shared memory.
template <int D, int kStage>
struct FlashQueries {
  uint16_t queries[kStage * (D + 8)], grads[kStage * (D + 8)];
  float sums[kStage], delta[kStage];
};

// A warp takes kStep queries of a stage at a time, and keeps intermediate results in registers beside its keys.
template <int D, int R, int kStage, int kStep, bool kMasked>
SG_FN void flash_backward_keys(Block& block, const FlashArgs& args) {
  using Stage = FlashQueries<D, kStage>;
  SG_SHARED(Stage, stages, 2);
  const FlashPlace at(block.index(), args.batches, args.heads / args.group, args.keys, flash_rows(R), Heaviest::first);
  const int begin = args.causal ? at.first / kStage * kStage : 0;
  const int end_head = static_cast<int>((at.head + 1) * args.group);
  auto load = [&](int head, int q, Stage& to) {
    const int64_t line = (at.batch * args.heads + head) * args.queries;
    flash_load<D, kStage>(block, args, {args.query, at.batch, head, args.queries}, q, to.queries);
    flash_load<D, kStage>(block, args, {args.grad_out, at.batch, head, args.queries}, q, to.grads);
    flash_load_line<kStage>(block, args.sums + line, q, args.queries, to.sums);
    flash_load_line<kStage>(block, args.delta + line, q, args.queries, to.delta);
  };
  int head = static_cast<int>(at.head * args.group), q = begin;
  auto advance = [&] {
    q += kStage;
    if (q >= args.queries) q = begin, ++head;
  };
  auto seen = [&](int of) { return FlashSeen<R>::by_key(args.tiles, at.batch, of, at.first); };
  auto pass_unseen = [&] {
    if constexpr (kMasked)
      while (head < end_head && !seen(head).any(q, kStage)) advance();
  };
  if (q >= args.queries) head = end_head;
  pass_unseen();
  if (head < end_head) load(head, q, stages[0]);
  Warps<FlashKeys<D, R>> state;
  block.warps(state, [&](int warp, FlashKeys<D, R>& s) {
    const int first = at.first + warp * kTileRows * R;
    flash_left_all(args, {args.key, at.batch, at.head, args.keys}, first, s.key);
    FlashScores<kMasked, FlashRows::keys>(args, at.batch, 0).take_rows(s.key);
    flash_left_all(args, {args.value, at.batch, at.head, args.keys}, first, s.value);
    s.grad_key.fill(0);
    s.grad_value.fill(0);
  });
  for (int stage = 0; head < end_head; stage ^= 1) {
    wait_for_copies();
    block.sync();  // this stage is loaded, and all are done with the other
    const FlashScores<kMasked, FlashRows::keys> scores(args, at.batch, head);
    const auto tiles = seen(head);
    const int now = q;
    advance();
    pass_unseen();
    if (head < end_head) load(head, q, stages[stage ^ 1]);
    block.warps(state, [&](int warp, FlashKeys<D, R>& s) {
      const int first = at.first + warp * kTileRows * R;
      if (first >= args.keys) return;
      const bool is_far =
          !kMasked && holds_for_any_of<kStage>([&](int i) { return flash_is_far(stages[stage].sums[i]); });
      SG_ONE_BY_ONE for (int part = 0; part < kStage; part += kStep) {
        const int query = now + part;
        if (!flash_sees(args, query, kStep, first)) continue;
        const uint32_t kind = kMasked ? tiles.kind(warp * kTileRows * R, query, kStep) : 0u;
        if (kMasked && !(kind & kSeen)) continue;
        const uint16_t* const queries = stages[stage].queries + part * (D + 8);
        const uint16_t* const grads = stages[stage].grads + part * (D + 8);
        const float *const sums = stages[stage].sums + part, *const delta = stages[stage].delta + part;
        // Keys down, queries across. Queries that do not exist have no gradient and contribute nothing.
        Tile<R, kStep / 8> weights, slopes;
        weights.fill(0);
        SG_UNROLL for (int d = 0; d < D / 16; ++d)
            multiply_tile<Lies::straight>(weights, s.key[d], queries, D + 8, 16 * d);
        scores.take_products(weights, query, first, kind);
        if (!kMasked && is_far)
          weights.each([&](int, int column, float& y) { y = scores.far_weight_of_logarithm(y, sums[column]); });
        else
          weights.each(
              [&](int, int column, float& y) { y = scores.weight(y, scores.line_of_logarithm(sums[column])); });
        SG_UNROLL for (int i = 0; i < kStep / 16; ++i)
            multiply_tile<Lies::turned>(s.grad_value, weights.left(i), grads, D + 8, 16 * i);
        slopes.fill(0);
        SG_UNROLL for (int d = 0; d < D / 16; ++d)
            multiply_tile<Lies::straight>(slopes, s.value[d], grads, D + 8, 16 * d);
        slopes.each([&](int, int column, float& y) { y -= delta[column]; });
        times(slopes, weights);
        SG_UNROLL for (int i = 0; i < kStep / 16; ++i)
            multiply_tile<Lies::turned>(s.grad_key, slopes.left(i), queries, D + 8, 16 * i);
      }
    });
  }
  block.warps(state, [&](int warp, FlashKeys<D, R>& s) {
    const int first = at.first + warp * kTileRows * R;
    s.grad_key.each([&](int, int, float& y) { y *= args.scale; });
    if (args.grad_key.data) flash_store(args, {args.grad_key, at.batch, at.head, args.keys}, first, s.grad_key);
    if (args.grad_value.data) flash_store(args, {args.grad_value, at.batch, at.head, args.keys}, first, s.grad_value);
  });
}

SG_KERNEL(flash_backward_keys_64, FlashArgs) { flash_backward_keys<64, 1, 64, 64, false>(block, args); }
SG_KERNEL(flash_backward_keys_64_wide, FlashArgs) { flash_backward_keys<64, 2, 64, 16, false>(block, args); }
SG_KERNEL(flash_backward_keys_64_masked, FlashArgs) { flash_backward_keys<64, 1, 64, 64, true>(block, args); }
SG_KERNEL(flash_backward_keys_64_wide_masked, FlashArgs) { flash_backward_keys<64, 2, 64, 16, true>(block, args); }
SG_KERNEL(flash_backward_keys_128, FlashArgs) { flash_backward_keys<128, 1, 32, 16, false>(block, args); }
SG_KERNEL(flash_backward_keys_128_masked, FlashArgs) { flash_backward_keys<128, 1, 32, 16, true>(block, args); }

// --- queries ---

template <int D, int R>
struct FlashQuery {
  LeftTile<R> query[D / 16], grad_out[D / 16];
  Tile<R, D / 8> grad;
  RowNumbers<R> line, delta;
  bool is_far;  // some row is: lines are logarithms
};

template <int D, int R, int kStep, bool kMasked>
SG_FN void flash_backward_queries(Block& block, const FlashArgs& args) {
  constexpr int kStage = kStep * (D + 8);
  SG_SHARED(uint16_t, keys, 2 * kStage);
  SG_SHARED(uint16_t, values, 2 * kStage);
  const FlashPlace at(block.index(), args.batches, args.heads, args.queries, flash_rows(R), Heaviest::last);
  const int64_t key_head = at.head / args.group;
  const int last = at.first + flash_rows(R), end = args.causal && last < args.keys ? last : args.keys;
  const FlashScores<kMasked, FlashRows::queries> scores(args, at.batch, at.head);
  const auto seen = FlashSeen<R>::by_query(args.tiles, at.batch, at.head, at.first);
  auto next = [&](int k) {  // the next stage of which anything is seen
    if constexpr (kMasked)
      while (k < end && !seen.any(k, kStep)) k += kStep;
    return k;
  };
  auto load = [&](int k, int stage) {
    flash_load<D, kStep>(block, args, {args.key, at.batch, key_head, args.keys}, k, keys + stage * kStage);
    flash_load<D, kStep>(block, args, {args.value, at.batch, key_head, args.keys}, k, values + stage * kStage);
  };
  int k = next(0);
  if (k < end) load(k, 0);
  Warps<FlashQuery<D, R>> state;
  block.warps(state, [&](int warp, FlashQuery<D, R>& s) {
    const int first = at.first + warp * kTileRows * R;
    const int64_t numbers = (at.batch * args.heads + at.head) * args.queries;
    flash_left_all(args, {args.query, at.batch, at.head, args.queries}, first, s.query);
    scores.take_rows(s.query);
    flash_left_all(args, {args.grad_out, at.batch, at.head, args.queries}, first, s.grad_out);
    s.grad.fill(0);
    bool is_far = false;
    each_row_kept<R>([&](int row) {
      const bool inside = first + row < args.queries;
      s.line.at(row) = inside ? args.sums[numbers + first + row] : 0.0f;
      s.delta.at(row) = inside ? args.delta[numbers + first + row] : 0.0f;
      is_far |= flash_is_far(s.line.at(row));
    });
    s.is_far = !kMasked && holds_for_any(is_far);
    if (!s.is_far) each_row_kept<R>([&](int row) { s.line.at(row) = scores.line_of_logarithm(s.line.at(row)); });
  });
  for (int stage = 0; k < end; stage ^= 1) {
    wait_for_copies();
    block.sync();  // this stage is loaded, and all are done with the other
    const int now = k;
    k = next(k + kStep);
    if (k < end) load(k, stage ^ 1);
    block.warps(state, [&](int warp, FlashQuery<D, R>& s) {
      const int first = at.first + warp * kTileRows * R;
      if (!flash_sees(args, first, kTileRows * R, now)) return;
      const uint32_t kind = kMasked ? seen.kind(warp * kTileRows * R, now, kStep) : 0u;
      if (kMasked && !(kind & kSeen)) return;
      Tile<R, kStep / 8> weights, slopes;
      weights.fill(0);
      slopes.fill(0);
      SG_UNROLL for (int d = 0; d < D / 16; ++d)
          multiply_tile<Lies::straight>(weights, s.query[d], keys + stage * kStage, D + 8, 16 * d);
      scores.take_products(weights, first, now, kind);
      if (s.is_far)
        weights.each([&](int row, int, float& x) { x = scores.far_weight_of_logarithm(x, s.line.at(row)); });
      else weights.each([&](int row, int, float& x) { x = scores.weight(x, s.line.at(row)); });
      SG_UNROLL for (int d = 0; d < D / 16; ++d)
          multiply_tile<Lies::straight>(slopes, s.grad_out[d], values + stage * kStage, D + 8, 16 * d);
      slopes.each([&](int row, int, float& x) { x -= s.delta.at(row); });
      times(slopes, weights);
      SG_UNROLL for (int i = 0; i < kStep / 16; ++i)
          multiply_tile<Lies::turned>(s.grad, slopes.left(i), keys + stage * kStage, D + 8, 16 * i);
    });
  }
  block.warps(state, [&](int warp, FlashQuery<D, R>& s) {
    s.grad.each([&](int, int, float& x) { x *= args.scale; });
    flash_store(args, {args.grad_query, at.batch, at.head, args.queries}, at.first + warp * kTileRows * R, s.grad);
  });
}

SG_KERNEL(flash_backward_queries_64, FlashArgs) { flash_backward_queries<64, 1, 64, false>(block, args); }
SG_KERNEL(flash_backward_queries_64_wide, FlashArgs) { flash_backward_queries<64, 2, 32, false>(block, args); }
SG_KERNEL(flash_backward_queries_64_masked, FlashArgs) { flash_backward_queries<64, 1, 64, true>(block, args); }
SG_KERNEL(flash_backward_queries_64_wide_masked, FlashArgs) { flash_backward_queries<64, 2, 32, true>(block, args); }
SG_KERNEL(flash_backward_queries_128, FlashArgs) { flash_backward_queries<128, 1, 32, false>(block, args); }
SG_KERNEL(flash_backward_queries_128_masked, FlashArgs) { flash_backward_queries<128, 1, 32, true>(block, args); }

}  // namespace sg::cuda
