// Copies between views of the same shape, and fills.
#pragma once

#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

struct CopyArgs {
  View to, from;
};

SG_KERNEL(copy_elements, CopyArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes)
      copy_element(args.to, offset_of(args.to, i), args.from, offset_of(args.from, i));
  });
}

struct FillArgs {
  View to;
  double re = 0, im = 0;
  int64_t whole = 0;
  bool is_whole = false;
};

SG_FN void fill_element(const FillArgs& args, int64_t offset) {
  const View& to = args.to;
  if (to.element == Element::c64)
    at<float>(to, 2 * offset) = static_cast<float>(args.re),
                      at<float>(to, 2 * offset + 1) = static_cast<float>(args.im);
  else if (to.element == Element::c128) at<double>(to, 2 * offset) = args.re, at<double>(to, 2 * offset + 1) = args.im;
  else if (args.is_whole) write_whole(to, offset, args.whole);
  else write<double>(to, offset, args.re);
}

SG_KERNEL(fill_elements, FillArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes)
      fill_element(args, offset_of(args.to, i));
  });
}

// start + i * step along one axis: integers are exact, floats are computed in double.
struct CountArgs {
  View to;
  double start = 0, step = 0;
  int64_t whole_start = 0, whole_step = 0;
};

SG_KERNEL(count_elements, CountArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const int64_t offset = offset_of(args.to, i);
      if (is_floating(args.to.element)) write<double>(args.to, offset, args.start + static_cast<double>(i) * args.step);
      else write_whole(args.to, offset, args.whole_start + i * args.whole_step);
    }
  });
}

// The triangle of the last two axes, with zeros outside.
struct TriangleArgs {
  View to, from;
  int64_t diagonal = 0;
  bool lower = true;
};

SG_KERNEL(triangle, TriangleArgs) {
  block.each([&](int lane) {
    const int64_t columns = args.to.shape[args.to.axes - 1], rows = args.to.shape[args.to.axes - 2];
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const int64_t row = i / columns % rows, column = i % columns;
      const bool kept = args.lower ? column <= row + args.diagonal : column >= row + args.diagonal;
      const int64_t offset = offset_of(args.to, i);
      if (kept) copy_element(args.to, offset, args.from, offset_of(args.from, i));
      else write_whole(args.to, offset, 0);
    }
  });
}

// Raises a fault if an element is 0.
struct AssertArgs {
  View flag;
  Report report;
};

SG_KERNEL(assert_true, AssertArgs) {
  block.each([&](int lane) {
    if (lane == 0 && read<double>(args.flag, 0) == 0) args.report.raise(Fault::Kind::assertion);
  });
}

}  // namespace sg::cuda
