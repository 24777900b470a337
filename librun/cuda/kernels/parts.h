// Long sums by many blocks: each adds up a part, then the parts are added in their order. The same bits in each run.
#pragma once

#include "librun/cuda/kernels/norms.h"

namespace sg::cuda {

// What is added up to `results` results, each of `length` numbers, `run` of them a part.
struct Parts {
  TwoSums* at = nullptr;  // [count, results]
  int64_t count = 1, results = 0, length = 0, run = 0;

  SG_FN int64_t end_of(int64_t part) const { return (part + 1) * run < length ? (part + 1) * run : length; }
};

inline constexpr int kTileColumns = 32;

// Where results lie next to each other: a block has 32 of them and a part of their numbers, value(result, i), so that
// neighbouring lanes read neighbours.
template <class F>
SG_FN void sum_tile(const Block& block, const Parts& parts, const F& value) {
  SG_SHARED(TwoSums, held, kLanes);
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

struct PartSumArgs {
  View from;  // the results' axes first, as in reduce.h
  int32_t kept = 0;
  Parts parts;
};

SG_KERNEL(column_parts, PartSumArgs) {
  sum_tile(block, args.parts, [&](int64_t result, int64_t i) {
    return TwoSums{read<double>(args.from, result * args.from.stride[0] + i * args.from.stride[1]), 0};
  });
}

SG_KERNEL(row_parts, PartSumArgs) {
  const Parts& parts = args.parts;
  const int64_t result = block.index() / parts.count, part = block.index() % parts.count;
  const int64_t begin = offset_over(args.from, 0, args.kept, result);
  auto sums = block.each([&](int lane) {
    double sum = 0;
    for (int64_t i = part * parts.run + lane; i < parts.end_of(part); i += kLanes)
      sum += read<double>(args.from, begin + offset_over(args.from, args.kept, args.from.axes, i));
    return sum;
  });
  const double sum = block.reduce(sums, Sum());
  block.each([&](int lane) {
    if (lane == 0) parts.at[part * parts.results + result] = {sum, 0};
  });
}

// Gradients of a norm's weight and bias.
struct NormPartArgs {
  NormArgs norm;
  Parts parts;
};

SG_KERNEL(norm_column_parts, NormPartArgs) {
  sum_tile(block, args.parts, [&](int64_t i, int64_t row) {
    const double g = gradient_of(args.norm, row, i);
    return TwoSums{g * normed(args.norm, row, i), g};
  });
}

struct PartsSumArgs {
  Parts parts;
  View first, second;  // those that are not there have no data
  double divisor = 1;
};

SG_KERNEL(finish_parts, PartsSumArgs) {
  block.each([&](int lane) {
    const Parts& parts = args.parts;
    for (int64_t r = block.index() * kLanes + lane; r < parts.results; r += block.count() * kLanes) {
      TwoSums sum = parts.at[r];
      for (int64_t part = 1; part < parts.count; ++part) sum = AddTwo()(sum, parts.at[part * parts.results + r]);
      if (args.first.data) write<double>(args.first, offset_of(args.first, r), sum.a / args.divisor);
      if (args.second.data) write<double>(args.second, offset_of(args.second, r), sum.b / args.divisor);
    }
  });
}

}  // namespace sg::cuda
