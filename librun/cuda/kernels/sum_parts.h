// Long sums by many blocks: each adds up a part, then the parts are added in order (parts.h). Equal runs give equal
// bits.
#pragma once

#include "librun/cuda/kernels/reduce_row.h"

namespace sg::cuda {

// Sums `results` rows of `length` numbers each, in parts of `run` numbers.
struct Parts {
  TwoSums* at = nullptr;  // [count, results]
  int64_t count = 1, results = 0, length = 0, run = 0;

  SG_FN int64_t end_of(int64_t part) const { return (part + 1) * run < length ? (part + 1) * run : length; }
};

inline constexpr int kTileColumns = 32;

// For adjacent results: a block handles 32 of them and a part of their numbers, value(result, i), so that adjacent
// lanes read adjacent memory. `held`: memory of the block, one element per lane.
template <class F>
SG_FN void sum_tile(const Block& block, const Parts& parts, TwoSums* held, const F& value) {
  const int64_t tiles = (parts.results + kTileColumns - 1) / kTileColumns;
  const int64_t first = block.index() % tiles * kTileColumns, part = block.index() / tiles;
  block.each([&](int lane) {
    const int64_t result = first + lane % kTileColumns, end = parts.end_of(part);
    TwoSums sum{0, 0};
    if (result < parts.results)
      for (int64_t i = part * parts.run + lane / kTileColumns; i < end; i += kLanes / kTileColumns)
        sum = AddTwo()(sum, value(result, i));
    held[lane] = sum;
  });
  block.sync();
  block.each([&](int lane) {
    if (lane >= kTileColumns || first + lane >= parts.results) return;
    TwoSums sum = held[lane];
    for (int i = lane + kTileColumns; i < kLanes; i += kTileColumns) sum = AddTwo()(sum, held[i]);
    parts.at[part * parts.results + first + lane] = sum;
  });
}

// One block per part of one result's numbers.
template <class F>
SG_FN void sum_run(const Block& block, const Parts& parts, const F& value) {
  const int64_t result = block.index() / parts.count, part = block.index() % parts.count;
  auto sums = block.each([&](int lane) {
    double sum = 0;
    for (int64_t i = part * parts.run + lane; i < parts.end_of(part); i += kLanes) sum += value(result, i).a;
    return sum;
  });
  const double sum = block.reduce(sums, Sum());
  block.each([&](int lane) {
    if (lane == 0) parts.at[part * parts.results + result] = {sum, 0};
  });
}

}  // namespace sg::cuda
