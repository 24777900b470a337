// Long sums of numbers in memory, by parts (sum_parts.h).
#pragma once

#include "librun/cuda/kernels/norms.h"
#include "librun/cuda/kernels/reduce.h"
#include "librun/cuda/kernels/sum_parts.h"

namespace sg::cuda {

struct PartSumArgs {
  View from;  // the results' axes first, as in reduce.h
  int32_t kept = 0;
  Parts parts;
  ReduceHow how;
};

// f(function from a number to its addend): selected outside the loops.
template <class F>
SG_FN void with_addend(const ReduceHow& how, const F& f) {
  if (how.kind == Reduce::norm) return f([&](double x) { return power_of(x, how.parameter); });
  f([](double x) { return x; });
}

SG_KERNEL(column_parts, PartSumArgs) {
  SG_SHARED(TwoSums, held, kLanes);
  with_addend(args.how, [&](const auto& addend) {
    with_type(args.from.element, [&](auto raw) {
      sum_tile(block, args.parts, held, [&](int64_t result, int64_t i) {
        return TwoSums{addend(Line<decltype(raw)>(args.from, result * args.from.stride[0], args.from.stride[1])[i]), 0};
      });
    });
  });
}

SG_KERNEL(row_parts, PartSumArgs) {
  with_addend(args.how, [&](const auto& addend) {
    if (rows_are_lines(args.from, args.kept))
      return with_type(args.from.element, [&](auto raw) {
        sum_run(block, args.parts, [&](int64_t result, int64_t i) {
          const int64_t first = offset_over(args.from, 0, args.kept, result);
          return TwoSums{addend(Line<decltype(raw)>(args.from, first, args.from.stride[args.kept])[i]), 0};
        });
      });
    sum_run(block, args.parts, [&](int64_t result, int64_t i) {
      const int64_t offset =
          offset_over(args.from, 0, args.kept, result) + offset_over(args.from, args.kept, args.from.axes, i);
      return TwoSums{addend(read<double>(args.from, offset)), 0};
    });
  });
}

// Gradients of a norm's weight and bias.
struct NormPartArgs {
  NormArgs norm;
  Parts parts;
};

// f(mean of a row, its factor): specialized for f32, so that a loop over rows does not dispatch.
template <class F>
SG_FN void with_row_numbers(const NormArgs& args, const F& f) {
  const bool floats = args.rstd.element == Element::f32 && (!args.centered || args.mean.element == Element::f32);
  auto mean = [&](int64_t row) { return args.centered ? read<double>(args.mean, row) : 0; };
  auto rstd = [&](int64_t row) { return read<double>(args.rstd, row); };
  auto mean_float = [&](int64_t row) { return args.centered ? static_cast<double>(at<float>(args.mean, row)) : 0; };
  auto rstd_float = [&](int64_t row) { return static_cast<double>(at<float>(args.rstd, row)); };
  if (floats) f(mean_float, rstd_float);
  else f(mean, rstd);
}

SG_KERNEL(norm_column_parts, NormPartArgs) {
  SG_SHARED(TwoSums, held, kLanes);
  with_row_numbers(args.norm, [&](const auto& mean, const auto& rstd) {
    with_norm_reader(args.norm, [&](const auto& of) {
      sum_tile(block, args.parts, held, [&](int64_t i, int64_t row) {
        const double g = of.gradient(row, i);
        return TwoSums{g * ((of.value(row, i) - mean(row)) * rstd(row)), g};
      });
    });
  });
}

struct PartsSumArgs {
  Parts parts;
  View first, second;  // missing ones have no data
  double divisor = 1;
  double power = 1;  // for a norm, whose root is taken
};

SG_KERNEL(finish_parts, PartsSumArgs) {
  block.each([&](int lane) {
    const Parts& parts = args.parts;
    for (int64_t r = block.index() * kLanes + lane; r < parts.results; r += block.count() * kLanes) {
      TwoSums sum = parts.at[r];
      for (int64_t part = 1; part < parts.count; ++part) sum = AddTwo()(sum, parts.at[part * parts.results + r]);
      if (args.first.data)
        write<double>(args.first, offset_of(args.first, r), finish_norm(sum.a, args.power) / args.divisor);
      if (args.second.data) write<double>(args.second, offset_of(args.second, r), sum.b / args.divisor);
    }
  });
}

}  // namespace sg::cuda
