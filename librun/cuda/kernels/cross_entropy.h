// Cross entropy of classes without log-probabilities in memory: a block a row.
#pragma once

#include "librun/cuda/kernels/loss.h"
#include "librun/cuda/kernels/norms.h"

namespace sg::cuda {

struct CrossEntropyArgs {
  LossArgs loss;     // backward: its gradient, total and weight
  View to, from;     // rows of scores, and of their gradients
  double* log_sums;  // [rows]
  double* picked;    // forward: the log-probability of each row's class
};

// A log-probability as memory would hold it.
template <class C>
SG_FN C log_probability(C x, double logs) {
  return static_cast<C>(static_cast<double>(x) - logs);
}

template <class From>
SG_FN void cross_entropy_row(const Block& block, const CrossEntropyArgs& args, int64_t row) {
  const Line<From> from = row_line<From>(args.from, row);
  const double logs = log_sum(args.from, exp_sum(block, from, args.loss.classes));
  block.each([&](int lane) {
    if (lane != 0) return;
    const int64_t label = class_of(args.loss, row);
    args.log_sums[row] = logs;
    args.picked[row] = label < 0 ? 0 : static_cast<double>(log_probability(from.number(label), logs));
  });
}

SG_KERNEL(cross_entropy_rows, CrossEntropyArgs) {
  with_type(args.from.element, [&]<class From>(From) {
    for (int64_t row = block.index(); row < args.loss.count; row += block.count())
      cross_entropy_row<From>(block, args, row);
  });
}

// A number is read before it is written over: the gradient may lie where the scores do.
template <class To, class From>
SG_FN void cross_entropy_backward_row(const Block& block, const CrossEntropyArgs& args, int64_t row) {
  const Line<To> to = row_line<To>(args.to, row);
  const Line<From> from = row_line<From>(args.from, row);
  block.each([&](int lane) {
    using C = typename Line<From>::Number;
    const int64_t label = class_of(args.loss, row);
    const double g = label < 0 ? 0 : static_cast<C>(class_slope(args.loss, row, label)), logs = args.log_sums[row];
    for (int64_t i = lane; i < args.loss.classes; i += kLanes)
      to.put(i, (i == label ? g : 0) - static_cast<double>(math::exp_float(log_probability(from.number(i), logs))) * g);
  });
}

SG_KERNEL(cross_entropy_backward_rows, CrossEntropyArgs) {
  with_types(args.to.element, args.from.element, [&]<class To, class From>(To, From) {
    for (int64_t row = block.index(); row < args.loss.count; row += block.count())
      cross_entropy_backward_row<To, From>(block, args, row);
  });
}

}  // namespace sg::cuda
