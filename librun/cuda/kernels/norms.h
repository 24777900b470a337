// Softmax and layer norms: one block per row, or one warp, as in reduce.h.
#pragma once

#include "librun/cuda/kernels/lines.h"
#include "librun/cuda/kernels/reduce.h"
#include "librun/work/exp_float.h"

namespace sg::cuda {

// --- softmax: rows are along the last axis of all views ---

struct SoftmaxArgs {
  View to, from, gradient;  // backward: from = the result of the forward, gradient = its gradient
  int64_t rows = 0, length = 0;
  bool log = false, safe = false;  // safe: a row with only -infinity gives zeros
};

// The sum of exp(x - most), in double; if it is 0, nothing exceeds -infinity.
template <class C>
struct ExpSum {
  C most;
  double sum;
};

template <class C>
SG_FN C lowest() {
  return sizeof(C) == 4 ? static_cast<C>(-0x1.fffffep+127f) : static_cast<C>(-0x1.fffffffffffffp+1023);
}
// The factor that turns a sum of exp(x - from) into one of exp(x - to). In double, because it is applied often.
SG_FN double rescaled(float from, float to) { return math::exp_core(static_cast<double>(from) - to); }
SG_FN double rescaled(double from, double to) { return ::exp(from - to); }

struct MergeExpSums {
  template <class C>
  SG_FN ExpSum<C> operator()(const ExpSum<C>& a, const ExpSum<C>& b) const {
    const C most = a.most < b.most ? b.most : a.most;
    return {most, a.sum * rescaled(a.most, most) + b.sum * rescaled(b.most, most)};
  }
};

// The sum of a row, which is read once. NaN and +infinity make the sum NaN.
template <class Team, class From, class C = typename From::Number>
SG_FN ExpSum<C> exp_sum(const Team& team, const From& from, int64_t length) {
  auto part = team.each([&](int lane) {
    // Elements that a lane loads before it checks for a new maximum.
    constexpr int kAtOnce = sizeof(C) == 4 ? 8 : 1;
    ExpSum<C> acc{lowest<C>(), 0};
    for (int64_t i = lane; i < length; i += kAtOnce * Team::kWidth) {
      C x[kAtOnce], most = acc.most;
      const int64_t left = (length - i + Team::kWidth - 1) / Team::kWidth;
      SG_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        x[k] = k < left ? from.number(i + k * Team::kWidth) : most;
        most = most < x[k] ? x[k] : most;
      }
      if (most != acc.most) acc.sum *= rescaled(acc.most, most), acc.most = most;
      SG_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        if (k < left) acc.sum += static_cast<double>(math::exp_float(x[k] - most));
    }
    return acc;
  });
  return team.reduce(part, MergeExpSums());
}
// The term that log-softmax subtracts from each element.
template <class C>
SG_FN double log_sum(const View& from, const ExpSum<C>& e) {
  return static_cast<double>(e.most) + log_of(from, e.sum);
}

template <class Team, class To, class From>
SG_FN void softmax_row(const Team& team, const SoftmaxArgs& args, const To& to, const From& from) {
  const auto e = exp_sum(team, from, args.length);
  const double logs = log_sum(args.from, e);
  const bool empty = args.safe && e.sum == 0;
  team.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += Team::kWidth)
      to.put(i, empty      ? 0
                : args.log ? from[i] - logs
                           : static_cast<double>(math::exp_float(from.number(i) - e.most)) / e.sum);
  });
}

template <class Team>
SG_FN void softmax_all_rows(const Team& team, const SoftmaxArgs& args) {
  with_types(args.to.element, args.from.element, [&]<class To, class From>(To, From) {
    for (int64_t row = team.index(); row < args.rows; row += team.count())
      softmax_row(team, args, row_line<To>(args.to, row), row_line<From>(args.from, row));
  });
}

SG_KERNEL(softmax_rows, SoftmaxArgs) { softmax_all_rows(block, args); }
SG_KERNEL(softmax_rows_by_warps, SoftmaxArgs) {
  for_warps(block, [&](const auto& team) { softmax_all_rows(team, args); });
}

template <class Team, class To, class From>
SG_FN void softmax_backward_row(const Team& team, const SoftmaxArgs& args, const To& to, const From& from,
                                const From& gradient) {
  auto part = team.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < args.length; i += Team::kWidth) acc += args.log ? gradient[i] : gradient[i] * from[i];
    return acc;
  });
  const double sum = team.reduce(part, Sum());
  team.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += Team::kWidth) {
      const double g = gradient[i];
      to.put(i, args.log ? g - static_cast<double>(math::exp_float(from.number(i))) * sum : from[i] * (g - sum));
    }
  });
}

template <class Team>
SG_FN void softmax_backward_all_rows(const Team& team, const SoftmaxArgs& args) {
  const Element type = args.gradient.element == args.from.element ? args.from.element : Element::c128;
  with_types(type, args.to.element, [&]<class From, class To>(From, To) {
    for (int64_t row = team.index(); row < args.rows; row += team.count())
      softmax_backward_row(team, args, row_line<To>(args.to, row), row_line<From>(args.from, row),
                           row_line<From>(args.gradient, row));
  });
}

SG_KERNEL(softmax_backward_rows, SoftmaxArgs) { softmax_backward_all_rows(block, args); }
SG_KERNEL(softmax_backward_rows_by_warps, SoftmaxArgs) {
  for_warps(block, [&](const auto& team) { softmax_backward_all_rows(team, args); });
}

// --- layer norm: rows are the last axes of x; element i of a row has weight i ---

struct NormArgs {
  View to, from, weight, bias, gradient;  // missing ones have no data
  View mean, rstd;                        // written by forward, read by backward; contiguous, one per row
  int64_t rows = 0, length = 0;
  double eps = 0;
  bool centered = true;  // false: root mean square only
};

// Access to a norm's tensors: `Of` makes the accessor of a view (lines.h).
template <class Of>
struct NormReader {
  const NormArgs& args;

  SG_FN double value(int64_t row, int64_t i) const { return Of::of(args.from)[row * args.length + i]; }
  SG_FN double gradient(int64_t row, int64_t i) const { return Of::of(args.gradient)[row * args.length + i]; }
  SG_FN double weight(int64_t i) const { return args.weight.data ? Of::of(args.weight)[i] : 1; }
  SG_FN double bias(int64_t i) const { return args.bias.data ? Of::of(args.bias)[i] : 0; }
  SG_FN void put(int64_t row, int64_t i, double x) const { Of::of(args.to).put(row * args.length + i, x); }
  SG_FN double mean(int64_t row) const { return args.centered ? read<double>(args.mean, row) : 0; }
  SG_FN double rstd(int64_t row) const { return read<double>(args.rstd, row); }
};
template <class Raw>
struct AsLine {
  SG_FN static Line<Raw> of(const View& v) { return whole_line<Raw>(v); }
};
struct AsScattered {
  SG_FN static Scattered of(const View& v) { return {v}; }
};

// f(reader): with lines of one type, if all tensors of the norm's size are such lines.
template <class F>
SG_FN void with_norm_reader(const NormArgs& args, const F& f) {
  const Element type = args.from.element;
  const bool lines = is_line(args.from, type) && is_line(args.to, type) && is_line(args.gradient, type) &&
                     is_line(args.weight, type) && is_line(args.bias, type);
  if (!lines) return f(NormReader<AsScattered>{args});
  with_type(type, [&]<class Raw>(Raw) { f(NormReader<AsLine<Raw>>{args}); });
}

template <class Reader>
SG_FN void norm_row(const Block& block, const NormArgs& args, int64_t row, const Reader& of) {
  double mean = 0;
  if (args.centered) {
    auto part = block.each([&](int lane) {
      double acc = 0;
      for (int64_t i = lane; i < args.length; i += kLanes) acc += of.value(row, i);
      return acc;
    });
    mean = block.reduce(part, Sum()) / static_cast<double>(args.length);
  }
  auto part = block.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double x = of.value(row, i) - mean;
      acc += x * x;
    }
    return acc;
  });
  const double rstd = 1 / ::sqrt(block.reduce(part, Sum()) / static_cast<double>(args.length) + args.eps);
  block.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += kLanes) {
      double y = (of.value(row, i) - mean) * rstd * of.weight(i);
      if (args.bias.data) y += of.bias(i);
      of.put(row, i, y);
    }
    if (lane == 0 && args.mean.data) write<double>(args.mean, row, mean);
    if (lane == 0 && args.rstd.data) write<double>(args.rstd, row, rstd);
  });
}

SG_KERNEL(norm_rows, NormArgs) {
  with_norm_reader(args, [&](const auto& of) {
    for (int64_t row = block.index(); row < args.rows; row += block.count()) norm_row(block, args, row, of);
  });
}

template <class Reader>
SG_FN void norm_backward_row(const Block& block, const NormArgs& args, int64_t row, const Reader& of) {
  const double mean = of.mean(row), rstd = of.rstd(row);
  auto part = block.each([&](int lane) {
    TwoSums acc{0, 0};
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double g = of.gradient(row, i) * of.weight(i);
      acc = {acc.a + g, acc.b + g * ((of.value(row, i) - mean) * rstd)};
    }
    return acc;
  });
  TwoSums sums = block.reduce(part, AddTwo());
  const double n = static_cast<double>(args.length);
  if (!args.centered) sums.a = 0;
  block.each([&](int lane) {
    for (int64_t i = lane; i < args.length; i += kLanes) {
      const double g = of.gradient(row, i) * of.weight(i), x = (of.value(row, i) - mean) * rstd;
      of.put(row, i, (g - (sums.a + x * sums.b) / n) * rstd);
    }
  });
}

SG_KERNEL(norm_backward_rows, NormArgs) {
  with_norm_reader(args, [&](const auto& of) {
    for (int64_t row = block.index(); row < args.rows; row += block.count()) norm_backward_row(block, args, row, of);
  });
}

}  // namespace sg::cuda
