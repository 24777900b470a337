// Reductions: a block for each row, in double, merged in the order of block.h.
#pragma once

#include "librun/cuda/kernels/view.h"
#include "librun/work/math.h"

namespace sg::cuda {

struct Sum {
  template <class T>
  SG_FN T operator()(T a, T b) const {
    return a + b;
  }
};
struct TwoSums {
  double a, b;
};
struct AddTwo {
  SG_FN TwoSums operator()(const TwoSums& x, const TwoSums& y) const { return {x.a + y.a, x.b + y.b}; }
};
struct Larger {  // a NaN wins
  SG_FN double operator()(double a, double b) const { return a != a ? a : (a < b || b != b) ? b : a; }
};

// e^x to 1e-12 where the result is rounded to f32 or less, the library's where it is f64.
SG_FN double exp_of(const View& v, double x) { return v.element == Element::f64 ? ::exp(x) : math::exp_core(x); }
SG_FN double log_of(const View& v, double x) { return v.element == Element::f64 ? ::log(x) : math::log_core(x); }

enum class Reduce : uint8_t {
  sum,
  mean,
  product,
  largest,
  smallest,
  any,
  all,
  count,
  variance,
  deviation,
  norm,
  logsumexp,
  nan_sum
};

struct ReduceArgs {
  View from;          // kept axes first, then the reduced ones
  View to;            // the kept axes
  View mean;          // variance: the mean goes here; none = no data
  View index;         // largest, smallest: the position of the first such element, for one axis
  int32_t kept = 0;   // axes
  int64_t count = 1;  // elements of a row
  Reduce kind = Reduce::sum;
  double parameter = 0;  // variance: correction; norm: p
  bool whole = false;    // sums of integers
};

struct Extreme {
  double value;
  int64_t whole, index;  // index -1 = none yet
};
struct BetterExtreme {
  bool largest, whole;
  SG_FN bool better(const Extreme& a, const Extreme& b) const {  // a over b
    if (b.index < 0) return a.index >= 0;
    if (a.index < 0) return false;
    if (whole) return a.whole != b.whole ? (largest ? a.whole > b.whole : a.whole < b.whole) : a.index < b.index;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) return a_nan != b_nan ? a_nan : a.index < b.index;
    return a.value != b.value ? (largest ? a.value > b.value : a.value < b.value) : a.index < b.index;
  }
  SG_FN Extreme operator()(const Extreme& a, const Extreme& b) const { return better(b, a) ? b : a; }
};

struct Partial {
  double re, im;
  int64_t whole;
};
struct MergePartial {
  Reduce kind;
  int endless;  // of a norm: 1 and -1 for that order
  SG_FN Partial operator()(const Partial& a, const Partial& b) const {
    switch (kind) {
      case Reduce::product:
        return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re,
                static_cast<int64_t>(static_cast<uint64_t>(a.whole) * static_cast<uint64_t>(b.whole))};
      case Reduce::norm:
        if (endless == 0) break;
        if (a.re != a.re || b.re != b.re) return {a.re + b.re, 0, 0};
        return {(endless > 0) == (a.re < b.re) ? b.re : a.re, 0, 0};
      case Reduce::any: return {0, 0, a.whole | b.whole};
      case Reduce::all: return {0, 0, a.whole & b.whole};
      default: break;
    }
    return {a.re + b.re, a.im + b.im,
            static_cast<int64_t>(static_cast<uint64_t>(a.whole) + static_cast<uint64_t>(b.whole))};
  }
};

SG_FN int64_t row_offset(const ReduceArgs& args, int64_t row, int64_t i) {
  return offset_over(args.from, 0, args.kept, row) + offset_over(args.from, args.kept, args.from.axes, i);
}

SG_FN bool is_true(const View& v, int64_t offset) {
  if (is_complex(v.element)) return read<double>(v, offset) != 0 || read_imaginary<double>(v, offset) != 0;
  return is_floating(v.element) ? read<double>(v, offset) != 0 : read_whole(v, offset) != 0;
}

SG_FN double power_of(double x, double p) {
  const double a = math::abs(x);
  if (p == 2) return a * a;
  if (p == 1) return a;
  if (p == 0) return a != 0;
  return p - p != 0 ? a : ::pow(a, p);
}

SG_FN Partial partial_of(const ReduceArgs& args, int64_t offset) {
  const View& v = args.from;
  switch (args.kind) {
    case Reduce::any:
    case Reduce::all:
    case Reduce::count: return {0, 0, is_true(v, offset)};
    case Reduce::norm: {
      double x = read<double>(v, offset);
      if (is_complex(v.element)) x = ::hypot(x, read_imaginary<double>(v, offset));
      return {power_of(x, args.parameter), 0, 0};
    }
    case Reduce::nan_sum: {
      if (args.whole) return {0, 0, read_whole(v, offset)};
      const double x = read<double>(v, offset);
      return {x != x ? 0 : x, 0, 0};
    }
    default:
      if (args.whole) return {0, 0, read_whole(v, offset)};
      return {read<double>(v, offset), is_complex(v.element) ? read_imaginary<double>(v, offset) : 0, 0};
  }
}

SG_FN Partial reduce_partials(const Block& block, const ReduceArgs& args, int64_t row) {
  const double p = args.parameter;
  const int endless = args.kind == Reduce::norm && p - p != 0 ? (p > 0 ? 1 : -1) : 0;
  const MergePartial merge{args.kind, endless};
  const bool unit = args.kind == Reduce::product, flag = args.kind == Reduce::all;
  auto part = block.each([&](int lane) {
    Partial acc{unit ? 1.0 : endless < 0 ? math::infinity() : 0.0, 0, unit || flag};
    for (int64_t i = lane; i < args.count; i += kLanes) acc = merge(acc, partial_of(args, row_offset(args, row, i)));
    return acc;
  });
  return block.reduce(part, merge);
}

SG_FN void write_partial(const View& to, int64_t offset, const Partial& p, bool whole) {
  if (whole) return write_whole(to, offset, p.whole);
  if (to.element == Element::c64)
    at<float>(to, 2 * offset) = static_cast<float>(p.re), at<float>(to, 2 * offset + 1) = static_cast<float>(p.im);
  else if (to.element == Element::c128) at<double>(to, 2 * offset) = p.re, at<double>(to, 2 * offset + 1) = p.im;
  else write<double>(to, offset, p.re);
}

SG_FN void reduce_extreme(const Block& block, const ReduceArgs& args, int64_t row) {
  const bool whole = !is_floating(args.from.element);
  const BetterExtreme pick{args.kind == Reduce::largest, whole};
  auto part = block.each([&](int lane) {
    Extreme best{0, 0, -1};
    for (int64_t i = lane; i < args.count; i += kLanes) {
      const int64_t offset = row_offset(args, row, i);
      best = pick(
          best, whole ? Extreme{0, read_whole(args.from, offset), i} : Extreme{read<double>(args.from, offset), 0, i});
    }
    return best;
  });
  const Extreme best = block.reduce(part, pick);
  block.each([&](int lane) {
    if (lane != 0) return;
    if (args.to.data && whole) write_whole(args.to, offset_of(args.to, row), best.whole);
    else if (args.to.data) write<double>(args.to, offset_of(args.to, row), best.value);
    if (args.index.data) write_whole(args.index, offset_of(args.index, row), best.index);
  });
}

SG_FN double spread_around(const Block& block, const ReduceArgs& args, int64_t row, double center, double center_im) {
  const bool pairs = is_complex(args.from.element);
  auto part = block.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < args.count; i += kLanes) {
      const int64_t offset = row_offset(args, row, i);
      const double x = read<double>(args.from, offset) - center,
                   y = pairs ? read_imaginary<double>(args.from, offset) - center_im : 0;
      acc += x * x + y * y;
    }
    return acc;
  });
  return block.reduce(part, Sum());
}

SG_FN double row_largest(const Block& block, const ReduceArgs& args, int64_t row) {
  auto part = block.each([&](int lane) {
    double most = -math::infinity();
    for (int64_t i = lane; i < args.count; i += kLanes)
      most = Larger()(most, read<double>(args.from, row_offset(args, row, i)));
    return most;
  });
  return block.reduce(part, Larger());
}

SG_FN double reduce_logsumexp(const Block& block, const ReduceArgs& args, int64_t row) {
  const double most = row_largest(block, args, row), shift = most - most == 0 ? most : 0;
  auto part = block.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < args.count; i += kLanes)
      acc += exp_of(args.to, read<double>(args.from, row_offset(args, row, i)) - shift);
    return acc;
  });
  return shift + log_of(args.to, block.reduce(part, Sum()));
}

SG_FN double finish_norm(double sum, double p) {
  return p == 2 ? ::sqrt(sum) : p == 1 || p == 0 || p - p != 0 ? sum : ::pow(sum, 1 / p);
}

SG_FN void reduce_row(const Block& block, const ReduceArgs& args, int64_t row) {
  if (args.kind == Reduce::largest || args.kind == Reduce::smallest) return reduce_extreme(block, args, row);
  if (args.kind == Reduce::logsumexp) {
    const double sum = reduce_logsumexp(block, args, row);
    block.each([&](int lane) {
      if (lane == 0) write<double>(args.to, offset_of(args.to, row), sum);
    });
    return;
  }
  Partial total = reduce_partials(block, args, row);
  const double n = static_cast<double>(args.count), mean = total.re / n, mean_im = total.im / n;
  if (args.kind == Reduce::mean) total = {mean, total.im / n, 0};
  if (args.kind == Reduce::norm) total.re = finish_norm(total.re, args.parameter);
  if (args.kind == Reduce::variance || args.kind == Reduce::deviation) {
    const double left = n - args.parameter;
    total.re = spread_around(block, args, row, mean, mean_im) / (left > 0 ? left : 0);
    if (args.kind == Reduce::deviation) total.re = ::sqrt(total.re);
  }
  const bool whole = args.whole || args.kind == Reduce::any || args.kind == Reduce::all || args.kind == Reduce::count;
  block.each([&](int lane) {
    if (lane != 0) return;
    write_partial(args.to, offset_of(args.to, row), total, whole);
    if (args.mean.data) write_partial(args.mean, offset_of(args.mean, row), {mean, mean_im, 0}, false);
  });
}

SG_KERNEL(reduce_rows, ReduceArgs) {
  for (int64_t row = block.index(); row < args.to.count; row += block.count()) reduce_row(block, args, row);
}

// Sums of doubles: a block a part, then the parts.
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

// Sums of x * y over rows: a block a row.
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
