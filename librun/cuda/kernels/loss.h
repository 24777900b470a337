// Negative log likelihood: one block, or for many rows several, whose sums another one adds up.
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

struct LossArgs {
  View to, total, from, target, weight;  // from [n, classes] or its gradient; target [n]
  View gradient;                         // backward
  int64_t count = 0, classes = 0, ignore = -100;
  int reduction = 1;  // 0 none, 1 mean, 2 sum
  TwoSums* parts = nullptr;
  int64_t part_count = 0;
  Report report;
};

SG_FN double class_weight(const LossArgs& args, int64_t target) {
  return args.weight.data ? read<double>(args.weight, target * args.weight.stride[0]) : 1;
}
SG_FN int64_t class_of(const LossArgs& args, int64_t i) {  // -1 = ignored
  const int64_t target = read_whole(args.target, args.target.axes ? i * args.target.stride[0] : 0);
  if (target == args.ignore) return -1;
  if (target >= 0 && target < args.classes) return target;
  args.report.raise(Fault::Kind::index, target, args.classes);
  return -1;
}
SG_FN int64_t score_at(const View& v, int64_t i, int64_t c) {
  return v.axes == 2 ? i * v.stride[0] + c * v.stride[1] : c * v.stride[0];
}

// The losses and weights of every `step`-th row from `first` on.
SG_FN TwoSums sum_losses(const LossArgs& args, int64_t first, int64_t step) {
  TwoSums acc{0, 0};
  for (int64_t i = first; i < args.count; i += step) {
    const int64_t c = class_of(args, i);
    const double w = c < 0 ? 0 : class_weight(args, c),
                 x = c < 0 ? 0 : -w * read<double>(args.from, score_at(args.from, i, c));
    if (args.reduction == 0) write<double>(args.to, args.to.axes ? i * args.to.stride[0] : 0, x);
    acc = {acc.a + x, acc.b + w};
  }
  return acc;
}
SG_FN void write_loss(const LossArgs& args, const TwoSums& sums) {
  if (args.reduction != 0) write<double>(args.to, 0, args.reduction == 1 ? sums.a / sums.b : sums.a);
  write<double>(args.total, 0, args.reduction == 0 ? 0 : sums.b);
}

SG_KERNEL(nll_loss_all, LossArgs) {
  auto part = block.each([&](int lane) { return sum_losses(args, lane, kLanes); });
  const TwoSums sums = block.reduce(part, AddTwo());
  block.each([&](int lane) {
    if (lane == 0) write_loss(args, sums);
  });
}

SG_KERNEL(nll_loss_parts, LossArgs) {
  auto part =
      block.each([&](int lane) { return sum_losses(args, block.index() * kLanes + lane, args.part_count * kLanes); });
  const TwoSums sums = block.reduce(part, AddTwo());
  block.each([&](int lane) {
    if (lane == 0) args.parts[block.index()] = sums;
  });
}

SG_KERNEL(finish_nll_loss, LossArgs) {
  auto part = block.each([&](int lane) {
    TwoSums acc{0, 0};
    for (int64_t i = lane; i < args.part_count; i += kLanes) acc = AddTwo()(acc, args.parts[i]);
    return acc;
  });
  const TwoSums sums = block.reduce(part, AddTwo());
  block.each([&](int lane) {
    if (lane == 0) write_loss(args, sums);
  });
}

// The gradient of the score of row i's class.
SG_FN double class_slope(const LossArgs& args, int64_t i, int64_t c) {
  double g = read<double>(args.gradient, args.reduction == 0 && args.gradient.axes ? i * args.gradient.stride[0] : 0);
  if (args.reduction == 1) g /= read<double>(args.total, 0);
  return -class_weight(args, c) * g;
}

SG_KERNEL(nll_loss_backward_all, LossArgs) {  // `to` is initially zeros
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.count; i += block.count() * kLanes)
      if (const int64_t c = class_of(args, i); c >= 0)
        write<double>(args.to, score_at(args.to, i, c), class_slope(args, i, c));
  });
}

}  // namespace sg::cuda
