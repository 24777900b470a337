// Reductions, softmax and norms: a block for each row, in double, merged in the order of block.h.
#pragma once

#include "librun/cpu/math.h"
#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

namespace math = ::sg::cpu::math;

struct Sum {
  template <class T>
  SG_FN T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {  // a NaN wins
  SG_FN double operator()(double a, double b) const { return a != a ? a : (a < b || b != b) ? b : a; }
};

// e^x to 1e-12 where the result is rounded to f32 or less, the library's where it is f64.
SG_FN double exp_of(const View& v, double x) { return v.element == Element::f64 ? ::exp(x) : math::exp_core(x); }
SG_FN double log_of(const View& v, double x) { return v.element == Element::f64 ? ::log(x) : math::log_core(x); }

// --- reductions ---

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
  logsumexp
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
  SG_FN Partial operator()(const Partial& a, const Partial& b) const {
    switch (kind) {
      case Reduce::product:
        return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re,
                static_cast<int64_t>(static_cast<uint64_t>(a.whole) * static_cast<uint64_t>(b.whole))};
      case Reduce::any: return {0, 0, a.whole | b.whole};
      case Reduce::all: return {0, 0, a.whole & b.whole};
      default:
        return {a.re + b.re, a.im + b.im,
                static_cast<int64_t>(static_cast<uint64_t>(a.whole) + static_cast<uint64_t>(b.whole))};
    }
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
  return ::pow(a, p);
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
    default:
      if (args.whole) return {0, 0, read_whole(v, offset)};
      return {read<double>(v, offset), is_complex(v.element) ? read_imaginary<double>(v, offset) : 0, 0};
  }
}

SG_FN Partial reduce_partials(const Block& block, const ReduceArgs& args, int64_t row) {
  const MergePartial merge{args.kind};
  const bool unit = args.kind == Reduce::product, flag = args.kind == Reduce::all;
  auto part = block.each([&](int lane) {
    Partial acc{unit ? 1.0 : 0.0, 0, unit || flag};
    for (int64_t i = lane; i < args.count; i += kLanes) acc = merge(acc, partial_of(args, row_offset(args, row, i)));
    return acc;
  });
  return block.reduce(part, merge);
}

SG_FN void write_partial(const View& to, int64_t offset, const Partial& p, bool whole) {
  if (whole) return write_whole(to, offset, p.whole);
  if (to.element == Element::c64)
    at<float>(to, 2 * offset) = static_cast<float>(p.re), at<float>(to, 2 * offset + 1) = static_cast<float>(p.im);
  else if (to.element == Element::c128)
    at<double>(to, 2 * offset) = p.re, at<double>(to, 2 * offset + 1) = p.im;
  else
    write<double>(to, offset, p.re);
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
    if (args.to.data && whole)
      write_whole(args.to, offset_of(args.to, row), best.whole);
    else if (args.to.data)
      write<double>(args.to, offset_of(args.to, row), best.value);
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
  return p == 2 ? ::sqrt(sum) : p == 1 || p == 0 ? sum : ::pow(sum, 1 / p);
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

// --- softmax: rows lie along the last axis of all views ---

struct SoftmaxArgs {
  View to, from, gradient;  // backward: from = the result of forward, gradient = that of it
  int64_t rows = 0, length = 0;
  bool log = false, safe = false;  // safe: a row of -infinity alone gives zeros
};

SG_FN int64_t at_row(const View& v, int64_t row, int64_t i) {
  return offset_over(v, 0, v.axes - 1, row) + i * v.stride[v.axes - 1];
}

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
  block.sync();  // the result may lie in the argument
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
  block.sync();
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

struct TwoSums {
  double a, b;
};
struct AddTwo {
  SG_FN TwoSums operator()(const TwoSums& x, const TwoSums& y) const { return {x.a + y.a, x.b + y.b}; }
};

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

// Gradients of weight and bias: a block for each of them, rows in the order of lanes.
SG_KERNEL(norm_backward_columns, NormArgs) {
  for (int64_t i = block.index(); i < args.length; i += block.count()) {
    auto part = block.each([&](int lane) {
      TwoSums acc{0, 0};
      for (int64_t row = lane; row < args.rows; row += kLanes) {
        const double g = gradient_of(args, row, i);
        acc = {acc.a + g * normed(args, row, i), acc.b + g};
      }
      return acc;
    });
    const TwoSums sums = block.reduce(part, AddTwo());
    block.each([&](int lane) {
      if (lane == 0 && args.weight.data) write<double>(args.weight, offset_of(args.weight, i), sums.a);
      if (lane == 0 && args.bias.data) write<double>(args.bias, offset_of(args.bias, i), sums.b);
    });
  }
}

// --- running sums along the last axis ---

struct ScanArgs {
  View to, from;
  int64_t rows = 0, length = 0;
  bool whole = false;
};

SG_KERNEL(scan_rows, ScanArgs) {  // a lane a row: short rows, or few of them
  block.each([&](int lane) {
    for (int64_t row = block.index() * kLanes + lane; row < args.rows; row += block.count() * kLanes) {
      double sum = 0;
      uint64_t total = 0;
      for (int64_t i = 0; i < args.length; ++i) {
        const int64_t from = at_row(args.from, row, i), to = at_row(args.to, row, i);
        if (args.whole)
          write_whole(args.to, to, static_cast<int64_t>(total += static_cast<uint64_t>(read_whole(args.from, from))));
        else
          write<double>(args.to, to, sum += read<double>(args.from, from));
      }
    }
  });
}

// --- order: the rank of each element of a row among all, equal ones by their place ---

struct SortArgs {
  View values, indices, from;  // along the last axis; results have `kept` elements of it
  int64_t rows = 0, length = 0, kept = 0;
  bool descending = false;
};

SG_FN bool stands_before(const SortArgs& args, int64_t a_at, int64_t b_at, int64_t a, int64_t b) {
  if (is_floating(args.from.element)) {
    const double x = read<double>(args.from, a_at), y = read<double>(args.from, b_at);
    const bool x_nan = x != x, y_nan = y != y;
    if (x_nan || y_nan) return x_nan == y_nan ? a < b : x_nan == args.descending;  // a NaN is larger than any number
    return x != y ? (x < y) != args.descending : a < b;
  }
  const int64_t x = read_whole(args.from, a_at), y = read_whole(args.from, b_at);
  return x != y ? (x < y) != args.descending : a < b;
}

SG_KERNEL(sort_rows, SortArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count())
    block.each([&](int lane) {
      for (int64_t i = lane; i < args.length; i += kLanes) {
        const int64_t from = at_row(args.from, row, i);
        int64_t rank = 0;
        for (int64_t j = 0; j < args.length; ++j)
          rank += j != i && stands_before(args, at_row(args.from, row, j), from, j, i);
        if (rank >= args.kept) continue;
        if (args.values.data) copy_element(args.values, at_row(args.values, row, rank), args.from, from);
        if (args.indices.data) write_whole(args.indices, at_row(args.indices, row, rank), i);
      }
    });
}

// --- negative log likelihood: one block ---

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
SG_FN int64_t class_of(const LossArgs& args, int64_t i) {  // -1 = left out
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

SG_KERNEL(nll_loss_backward_all, LossArgs) {  // `to` is zeros
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.count; i += block.count() * kLanes) {
      const int64_t c = class_of(args, i);
      if (c < 0) continue;
      double g =
          read<double>(args.gradient, args.reduction == 0 && args.gradient.axes ? i * args.gradient.stride[0] : 0);
      if (args.reduction == 1) g /= read<double>(args.total, 0);
      write<double>(args.to, score_at(args.to, i, c), -class_weight(args, c) * g);
    }
  });
}

}  // namespace sg::cuda
