// Softmax and layer norms: a block for each row, as in reduce.h.
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

// --- softmax: rows lie along the last axis of all views ---

struct SoftmaxArgs {
  View to, from, gradient;  // backward: from = the result of forward, gradient = that of it
  int64_t rows = 0, length = 0;
  bool log = false, safe = false;  // safe: a row of -infinity alone gives zeros
};

SG_FN void softmax_row(const Block& block, const SoftmaxArgs& args, int64_t row) {
  auto most_part = block.each([&](int lane) {
    double most = -math::infinity();
    for (int64_t i = lane; i < args.length; i += kLanes)
      most = Larger()(most, read<double>(args.from, at_row(args.from, row, i)));
    return most;
  });
  const double most = block.reduce(most_part, Larger());
  auto part = block.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < args.length; i += kLanes)
      acc += exp_of(args.from, read<double>(args.from, at_row(args.from, row, i)) - most);
    return acc;
  });
  const double sum = block.reduce(part, Sum()), log_sum = log_of(args.from, sum);
  const bool empty = args.safe && most == -math::infinity();
  block.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double x = read<double>(args.from, at_row(args.from, row, i)) - most;
      write<double>(args.to, at_row(args.to, row, i), empty ? 0 : args.log ? x - log_sum : exp_of(args.from, x) / sum);
    }
  });
}

SG_KERNEL(softmax_rows, SoftmaxArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) softmax_row(block, args, row);
}

SG_FN void softmax_backward_row(const Block& block, const SoftmaxArgs& args, int64_t row) {
  auto part = block.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double g = read<double>(args.gradient, at_row(args.gradient, row, i));
      acc += args.log ? g : g * read<double>(args.from, at_row(args.from, row, i));
    }
    return acc;
  });
  const double sum = block.reduce(part, Sum());
  block.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double g = read<double>(args.gradient, at_row(args.gradient, row, i)),
                   y = read<double>(args.from, at_row(args.from, row, i));
      write<double>(args.to, at_row(args.to, row, i), args.log ? g - exp_of(args.from, y) * sum : y * (g - sum));
    }
  });
}

SG_KERNEL(softmax_backward_rows, SoftmaxArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) softmax_backward_row(block, args, row);
}

// --- layer norm: rows are the last axes of x; element i of a row has the weight i ---

struct NormArgs {
  View to, from, weight, bias, gradient;  // those that are not there have no data
  View mean, rstd;                        // forward writes, backward reads; contiguous, a row each
  int64_t rows = 0, length = 0;
  double eps = 0;
  bool centered = true;  // false: root mean square alone
};

SG_FN double weight_of(const View& w, int64_t i) { return w.data ? read<double>(w, offset_of(w, i)) : 1; }

SG_FN void norm_row(const Block& block, const NormArgs& args, int64_t row) {
  auto value = [&](int64_t i) { return read<double>(args.from, offset_of(args.from, row * args.length + i)); };
  double mean = 0;
  if (args.centered) {
    auto part = block.each([&](int lane) {
      double acc = 0;
      for (int64_t i = lane; i < args.length; i += kLanes) acc += value(i);
      return acc;
    });
    mean = block.reduce(part, Sum()) / static_cast<double>(args.length);
  }
  auto part = block.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < args.length; i += kLanes) acc += (value(i) - mean) * (value(i) - mean);
    return acc;
  });
  const double rstd = 1 / ::sqrt(block.reduce(part, Sum()) / static_cast<double>(args.length) + args.eps);
  block.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += kLanes) {
      double y = (value(i) - mean) * rstd * weight_of(args.weight, i);
      if (args.bias.data) y += read<double>(args.bias, offset_of(args.bias, i));
      write<double>(args.to, offset_of(args.to, row * args.length + i), y);
    }
    if (lane == 0 && args.mean.data) write<double>(args.mean, row, mean);
    if (lane == 0 && args.rstd.data) write<double>(args.rstd, row, rstd);
  });
}

SG_KERNEL(norm_rows, NormArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) norm_row(block, args, row);
}

SG_FN double normed(const NormArgs& args, int64_t row, int64_t i) {
  const double mean = args.centered ? read<double>(args.mean, row) : 0;
  return (read<double>(args.from, offset_of(args.from, row * args.length + i)) - mean) * read<double>(args.rstd, row);
}
SG_FN double gradient_of(const NormArgs& args, int64_t row, int64_t i) {
  return read<double>(args.gradient, offset_of(args.gradient, row * args.length + i));
}

SG_FN void norm_backward_row(const Block& block, const NormArgs& args, int64_t row) {
  auto part = block.each([&](int lane) {
    TwoSums acc{0, 0};
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double g = gradient_of(args, row, i) * weight_of(args.weight, i);
      acc = {acc.a + g, acc.b + g * normed(args, row, i)};
    }
    return acc;
  });
  TwoSums sums = block.reduce(part, AddTwo());
  const double n = static_cast<double>(args.length), rstd = read<double>(args.rstd, row);
  if (!args.centered) sums.a = 0;
  block.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double g = gradient_of(args, row, i) * weight_of(args.weight, i);
      write<double>(args.to, offset_of(args.to, row * args.length + i),
                    (g - (sums.a + normed(args, row, i) * sums.b) / n) * rstd);
    }
  });
}

SG_KERNEL(norm_backward_rows, NormArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) norm_backward_row(block, args, row);
}

}  // namespace sg::cuda
