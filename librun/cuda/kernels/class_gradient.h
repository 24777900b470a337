// The gradient of a class loss through log-softmax: one block per row. Each row of the loss's own gradient has a single
// nonzero element, so it is not stored.
#pragma once

#include "librun/cuda/kernels/loss.h"
#include "librun/cuda/kernels/norms.h"

namespace sg::cuda {

struct ClassGradientArgs {
  LossArgs loss;        // `to` and `from` have no data
  SoftmaxArgs softmax;  // of the gradient; its own gradient has no data
};

// Rounded as storing the loss's gradient would.
template <class Raw>
SG_FN double as_stored(double x) {
  if constexpr (std::is_same_v<Raw, AnyType>) return x;  // f64
  else return static_cast<double>(value_of(stored_as<Raw>(static_cast<float>(x))));
}

// The bits of softmax_backward_row: the sum of zeros and one number is that number, except for the sign of a zero.
template <class To, class From>
SG_FN void class_gradient_row(const Block& block, const ClassGradientArgs& args, int64_t row) {
  const Line<To> to = row_line<To>(args.softmax.to, row);
  const Line<From> from = row_line<From>(args.softmax.from, row);
  block.each([&](int lane) {
    const int64_t label = class_of(args.loss, row);
    const double g = label < 0 ? 0 : as_stored<From>(class_slope(args.loss, row, label)), sum = 0 + g;
    for (int64_t i = lane; i < args.softmax.length; i += kLanes)
      to.put(i, (i == label ? g : 0) - static_cast<double>(math::exp_float(from.number(i))) * sum);
  });
}

SG_KERNEL(class_gradient_rows, ClassGradientArgs) {
  with_types(args.softmax.from.element, args.softmax.to.element, [&]<class From, class To>(From, To) {
    for (int64_t row = block.index(); row < args.softmax.rows; row += block.count())
      class_gradient_row<To, From>(block, args, row);
  });
}

}  // namespace sg::cuda
