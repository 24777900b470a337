// Running sums, products and extremes along the last axis: one lane per row, for short rows or many of them.
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

enum class Scan : uint8_t { sum, product, log_sum, largest, smallest };

struct ScanArgs {
  View to, from;
  View index;  // extremes: their position, the last of equal ones
  int64_t rows = 0, length = 0;
  bool whole = false;
  Scan kind = Scan::sum;
};

// log(exp(a) + exp(b)); two equal infinities give that infinity.
SG_FN double add_logs(double a, double b) {
  if (a != a || b != b) return a + b;
  const double low = a < b ? a : b, high = a < b ? b : a;
  return low == high && low - low != 0 ? low : high + ::log1p(::exp(low - high));
}

SG_FN void scan_whole(const ScanArgs& args, int64_t row) {
  uint64_t total = args.kind == Scan::product;
  auto add = [&](int64_t number, int64_t i) {
    const auto x = static_cast<uint64_t>(number);
    total = args.kind == Scan::product ? total * x : total + x;
    write_whole(args.to, at_row(args.to, row, i), static_cast<int64_t>(total));
  };
  int64_t i = 0;
  if (args.from.element == Element::i64) {  // loads several before using the first, because of the memory latency
    constexpr int kAtOnce = 8;
    const int64_t* from = &at<int64_t>(args.from, at_row(args.from, row, 0));
    const int64_t step = args.from.stride[args.from.axes - 1];
    for (; i + kAtOnce <= args.length; i += kAtOnce) {
      int64_t x[kAtOnce];
      SG_UNROLL
      for (int k = 0; k < kAtOnce; ++k) x[k] = from[(i + k) * step];
      SG_UNROLL
      for (int k = 0; k < kAtOnce; ++k) add(x[k], i + k);
    }
  }
  for (; i < args.length; ++i) add(read_whole(args.from, at_row(args.from, row, i)), i);
}

SG_FN void scan_floats(const ScanArgs& args, int64_t row) {
  double acc = args.kind == Scan::product ? 1 : args.kind == Scan::log_sum ? -math::infinity() : 0;
  for (int64_t i = 0; i < args.length; ++i) {
    const double x = read<double>(args.from, at_row(args.from, row, i));
    acc = args.kind == Scan::product ? acc * x : args.kind == Scan::log_sum ? add_logs(acc, x) : acc + x;
    write<double>(args.to, at_row(args.to, row, i), acc);
  }
}

SG_FN void scan_complex(const ScanArgs& args, int64_t row) {
  double re = args.kind == Scan::product, im = 0;
  for (int64_t i = 0; i < args.length; ++i) {
    const int64_t at = at_row(args.from, row, i);
    const double x = read<double>(args.from, at), y = read_imaginary<double>(args.from, at), old = re;
    re = args.kind == Scan::product ? re * x - im * y : re + x;
    im = args.kind == Scan::product ? old * y + im * x : im + y;
    write_partial(args.to, at_row(args.to, row, i), {re, im, 0}, false);
  }
}

SG_FN void scan_extremes(const ScanArgs& args, int64_t row) {
  const bool largest = args.kind == Scan::largest;
  int64_t best = 0;
  for (int64_t i = 0; i < args.length; ++i) {
    const int64_t at = at_row(args.from, row, i), held = at_row(args.from, row, best);
    bool better;
    if (args.whole) {
      const int64_t x = read_whole(args.from, at), top = read_whole(args.from, held);
      better = largest ? x >= top : x <= top;
    } else {
      const double x = read<double>(args.from, at), top = read<double>(args.from, held);
      better = x != x || (top == top && (largest ? x >= top : x <= top));
    }
    if (better) best = i;
    copy_element(args.to, at_row(args.to, row, i), args.from, at_row(args.from, row, best));
    write_whole(args.index, at_row(args.index, row, i), best);
  }
}

SG_KERNEL(scan_rows, ScanArgs) {
  block.each([&](int lane) {
    for (int64_t row = block.index() * kLanes + lane; row < args.rows; row += block.count() * kLanes) {
      if (args.kind >= Scan::largest) scan_extremes(args, row);
      else if (is_complex(args.from.element)) scan_complex(args, row);
      else if (args.whole) scan_whole(args, row);
      else scan_floats(args, row);
    }
  });
}

}  // namespace sg::cuda
