// Reductions of numbers in memory: one block per row, or one warp.
#pragma once

#include "librun/cuda/kernels/lines.h"
#include "librun/cuda/kernels/reduce_row.h"

namespace sg::cuda {

struct ReduceArgs {
  View from;         // kept axes first, then the reduced ones
  int32_t kept = 0;  // axes
  ReduceHow how;
  ReduceTo to;
};

// An element of a view, read on demand.
struct ElementOf {
  const View& view;
  int64_t offset;

  SG_FN double re() const { return read<double>(view, offset); }
  SG_FN double im() const { return read_imaginary<double>(view, offset); }  // of complex ones
  SG_FN int64_t whole() const { return read_whole(view, offset); }
  SG_FN bool is_true() const {
    if (is_complex(view.element)) return re() != 0 || im() != 0;
    return is_floating(view.element) ? re() != 0 : whole() != 0;
  }
};
SG_FN bool is_true(const View& v, int64_t offset) { return ElementOf{v, offset}.is_true(); }

// Whether the numbers of each result are evenly spaced floats.
SG_FN bool rows_are_lines(const View& from, int32_t kept) { return from.axes == kept + 1 && is_floating(from.element); }

// The most common reduction, with a loop of just loads and sums; numbers are accumulated and merged as in reduce_row.
template <class Raw, class Team>
SG_FN void sum_line(const Team& team, const ReduceArgs& args, int64_t row) {
  const Line<Raw> line(args.from, offset_over(args.from, 0, args.kept, row), args.from.stride[args.kept]);
  auto part = team.each([&](int lane) {
    double sum = 0;
    for (int64_t i = lane; i < args.how.count; i += Team::kWidth) sum += line[i];
    return sum;
  });
  const double sum = team.reduce(part, Sum());
  const double n = args.how.kind == Reduce::mean ? static_cast<double>(args.how.count) : 1;
  team.each([&](int lane) {
    if (lane == 0) write<double>(args.to.to, offset_of(args.to.to, row), sum / n);
  });
}

template <class Team>
SG_FN void reduce_all_rows(const Team& team, const ReduceArgs& args) {
  const bool is_sum = !args.how.whole && (args.how.kind == Reduce::sum || args.how.kind == Reduce::mean);
  if (is_sum && rows_are_lines(args.from, args.kept))
    return with_type(args.from.element, [&](auto raw) {
      for (int64_t row = team.index(); row < args.to.to.count; row += team.count())
        sum_line<decltype(raw)>(team, args, row);
    });
  for (int64_t row = team.index(); row < args.to.to.count; row += team.count()) {
    const auto number = [&](int64_t i) {
      return ElementOf{
          args.from, offset_over(args.from, 0, args.kept, row) + offset_over(args.from, args.kept, args.from.axes, i)};
    };
    reduce_row(team, args.how, args.to, row, number, number);
  }
}

SG_KERNEL(reduce_rows, ReduceArgs) { reduce_all_rows(block, args); }
SG_KERNEL(reduce_rows_by_warps, ReduceArgs) {
  for_warps(block, [&](const auto& team) { reduce_all_rows(team, args); });
}

// Sums of doubles: one block per part, then the parts.
struct SumArgs {
  const double* from = nullptr;
  double* to = nullptr;
  int64_t count = 0;
};

SG_KERNEL(sum_parts, SumArgs) {
  auto part = block.each([&](int lane) {
    double acc = 0;
    for (int64_t i = block.index() * kLanes + lane; i < args.count; i += block.count() * kLanes) acc += args.from[i];
    return acc;
  });
  const double sum = block.reduce(part, Sum());
  block.each([&](int lane) {
    if (lane == 0) args.to[block.index()] = sum;
  });
}

// Sums of x * y over rows: one block per row.
struct RowDotArgs {
  const double *x = nullptr, *y = nullptr;
  double* to = nullptr;
  int64_t rows = 0, length = 0;
};

SG_KERNEL(row_dots, RowDotArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) {
    auto part = block.each([&](int lane) {
      double acc = 0;
      for (int64_t i = row * args.length + lane; i < (row + 1) * args.length; i += kLanes) acc += args.x[i] * args.y[i];
      return acc;
    });
    const double sum = block.reduce(part, Sum());
    block.each([&](int lane) {
      if (lane == 0) args.to[row] = sum;
    });
  }
}

}  // namespace sg::cuda
