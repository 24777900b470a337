// Negative log likelihood: one block.
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

struct LossArgs {
  View to, total, from, target, weight;  // from [n, classes] or its gradient; target [n]
  View gradient;                         // backward
  int64_t count = 0, classes = 0, ignore = -100;
  int reduction = 1;  // 0 none, 1 mean, 2 sum
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

SG_KERNEL(nll_loss_all, LossArgs) {
  auto part = block.each([&](int lane) {
    TwoSums acc{0, 0};
    for (int64_t i = lane; i < args.count; i += kLanes) {
      const int64_t c = class_of(args, i);
      const double w = c < 0 ? 0 : class_weight(args, c),
                   x = c < 0 ? 0 : -w * read<double>(args.from, score_at(args.from, i, c));
      if (args.reduction == 0) write<double>(args.to, args.to.axes ? i * args.to.stride[0] : 0, x);
      acc = {acc.a + x, acc.b + w};
    }
    return acc;
  });
  const TwoSums sums = block.reduce(part, AddTwo());
  block.each([&](int lane) {
    if (lane != 0) return;
    if (args.reduction != 0) write<double>(args.to, 0, args.reduction == 1 ? sums.a / sums.b : sums.a);
    write<double>(args.total, 0, args.reduction == 0 ? 0 : sums.b);
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
