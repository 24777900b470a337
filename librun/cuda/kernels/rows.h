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

// --- running sums, products and extremes along the last axis: a lane a row, for short rows or many of them ---

enum class Scan : uint8_t { sum, product, log_sum, largest, smallest };

struct ScanArgs {
  View to, from;
  View index;  // extremes: where it is, the last of equal ones
  int64_t rows = 0, length = 0;
  bool whole = false;
  Scan kind = Scan::sum;
};

// log(exp(a) + exp(b)); a pair of equal infinities is that infinity.
SG_FN double add_logs(double a, double b) {
  if (a != a || b != b) return a + b;
  const double low = a < b ? a : b, high = a < b ? b : a;
  return low == high && low - low != 0 ? low : high + ::log1p(::exp(low - high));
}

SG_FN void scan_whole(const ScanArgs& args, int64_t row) {
  uint64_t total = args.kind == Scan::product;
  for (int64_t i = 0; i < args.length; ++i) {
    const auto x = static_cast<uint64_t>(read_whole(args.from, at_row(args.from, row, i)));
    total = args.kind == Scan::product ? total * x : total + x;
    write_whole(args.to, at_row(args.to, row, i), static_cast<int64_t>(total));
  }
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
      if (args.kind >= Scan::largest)
        scan_extremes(args, row);
      else if (is_complex(args.from.element))
        scan_complex(args, row);
      else if (args.whole)
        scan_whole(args, row);
      else
        scan_floats(args, row);
    }
  });
}

// --- order: positions of a row sorted by merging runs of twice the length, equal elements by their place ---

struct SortArgs {
  View values, indices, from;  // along the last axis; results have `kept` elements of it
  int64_t rows = 0, length = 0, kept = 0;
  int64_t *order = nullptr, *space = nullptr;  // [rows, length] each
  bool descending = false;
};

// Whether the element at a_at has to come before the one at b_at; false where they are equal.
SG_FN bool stands_before(const SortArgs& args, int64_t a_at, int64_t b_at) {
  if (is_floating(args.from.element)) {
    const double x = read<double>(args.from, a_at), y = read<double>(args.from, b_at);
    const bool x_nan = x != x, y_nan = y != y;
    if (x_nan || y_nan) return x_nan != y_nan && x_nan == args.descending;  // a NaN is larger than any number
    return x != y && (x < y) != args.descending;
  }
  const int64_t x = read_whole(args.from, a_at), y = read_whole(args.from, b_at);
  return x != y && (x < y) != args.descending;
}

// Where element `i` of the runs [first, middle) and [middle, end) comes to stand in both together.
SG_FN int64_t merged_place(const SortArgs& args, int64_t row, const int64_t* order, int64_t first, int64_t middle,
                           int64_t end, int64_t i) {
  const int64_t at = at_row(args.from, row, order[i]);
  const bool of_first = i < middle;
  int64_t low = of_first ? middle : first, high = of_first ? end : middle;
  const int64_t begin = low;
  while (low < high) {  // how many of the other run stand before it
    const int64_t half = low + (high - low) / 2, other = at_row(args.from, row, order[half]);
    if (of_first ? stands_before(args, other, at) : !stands_before(args, at, other))
      low = half + 1;
    else
      high = half;
  }
  return first + (i - (of_first ? first : middle)) + (low - begin);
}

SG_KERNEL(sort_rows, SortArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) {
    int64_t *from = args.order + row * args.length, *to = args.space + row * args.length;
    block.each([&](int lane) {
      for (int64_t i = lane; i < args.length; i += kLanes) from[i] = i;
    });
    for (int64_t width = 1; width < args.length; width *= 2) {
      block.sync();
      block.each([&](int lane) {
        for (int64_t i = lane; i < args.length; i += kLanes) {
          const int64_t first = i / (2 * width) * 2 * width;
          const int64_t middle = first + width < args.length ? first + width : args.length;
          const int64_t end = middle + width < args.length ? middle + width : args.length;
          to[merged_place(args, row, from, first, middle, end, i)] = from[i];
        }
      });
      int64_t* held = from;
      from = to;
      to = held;
    }
    block.sync();
    block.each([&](int lane) {
      for (int64_t i = lane; i < args.kept; i += kLanes) {
        if (args.values.data)
          copy_element(args.values, at_row(args.values, row, i), args.from, at_row(args.from, row, from[i]));
        if (args.indices.data) write_whole(args.indices, at_row(args.indices, row, i), from[i]);
      }
    });
    block.sync();
  }
}

// One element of each sorted row: a median, or what occurs most often.
struct PickArgs {
  View from;                  // the rows, as they were
  const int64_t* order = nullptr;  // [rows, length], sorted
  View values, indices;       // by row; indices may have no data
  int64_t rows = 0, length = 0;
  bool is_mode = false, ignores_nan = false;
};

SG_FN bool is_nan_at(const View& v, int64_t offset) {
  if (!is_floating(v.element)) return false;
  const double x = read<double>(v, offset);
  return x != x;
}

SG_FN int64_t median_place(const PickArgs& args, int64_t row, const int64_t* order) {
  int64_t counted = args.length;
  while (counted > 0 && is_nan_at(args.from, at_row(args.from, row, order[counted - 1]))) --counted;
  if (counted == args.length) return (counted - 1) / 2;
  return counted == 0 || !args.ignores_nan ? counted : (counted - 1) / 2;
}

SG_FN bool are_equal(const View& v, int64_t a, int64_t b) {
  if (is_floating(v.element)) return read<double>(v, a) == read<double>(v, b);
  return read_whole(v, a) == read_whole(v, b);
}

SG_FN int64_t mode_place(const PickArgs& args, int64_t row, const int64_t* order) {
  int64_t most = 0, run = 0, found = 0;
  for (int64_t i = 0; i < args.length; ++i) {
    ++run;
    if (i + 1 < args.length &&
        are_equal(args.from, at_row(args.from, row, order[i]), at_row(args.from, row, order[i + 1])))
      continue;
    if (run > most) most = run, found = i;
    run = 0;
  }
  return found;
}

SG_KERNEL(pick_of_sorted, PickArgs) {
  block.each([&](int lane) {
    for (int64_t row = block.index() * kLanes + lane; row < args.rows; row += block.count() * kLanes) {
      const int64_t* order = args.order + row * args.length;
      const int64_t at = order[args.is_mode ? mode_place(args, row, order) : median_place(args, row, order)];
      copy_element(args.values, offset_of(args.values, row), args.from, at_row(args.from, row, at));
      if (args.indices.data) write_whole(args.indices, offset_of(args.indices, row), at);
    }
  });
}

// --- what is where: the places of flags, in order ---

inline constexpr int64_t kFlagRun = 64;  // that a lane counts

struct FlagArgs {
  View flags;
  int64_t runs = 0;
  unsigned* count = nullptr;       // by run
  const int64_t* begin = nullptr;  // by run: how many come before it
  int64_t* to = nullptr;           // the places
};

SG_FN bool flag_at(const FlagArgs& args, int64_t i) { return is_true(args.flags, offset_of(args.flags, i)); }

SG_KERNEL(flag_counts, FlagArgs) {
  block.each([&](int lane) {
    for (int64_t run = block.index() * kLanes + lane; run < args.runs; run += block.count() * kLanes) {
      unsigned n = 0;
      for (int64_t i = run * kFlagRun; i < (run + 1) * kFlagRun && i < args.flags.count; ++i) n += flag_at(args, i);
      args.count[run] = n;
    }
  });
}

SG_KERNEL(flag_places, FlagArgs) {
  block.each([&](int lane) {
    for (int64_t run = block.index() * kLanes + lane; run < args.runs; run += block.count() * kLanes) {
      int64_t at = args.begin[run];
      for (int64_t i = run * kFlagRun; i < (run + 1) * kFlagRun && i < args.flags.count; ++i)
        if (flag_at(args, i)) args.to[at++] = i;
    }
  });
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
