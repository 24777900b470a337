// How a team (a block or a warp) reduces the numbers of a row, whether they come from memory (reduce.h) or from a chain
// (generated_reduce.h). In double, merged in the order of block.h and warp.h.
#pragma once

#include "librun/cuda/kernels/view.h"
#include "librun/cuda/kernels/warp.h"
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
struct Larger {  // NaN wins
  SG_FN double operator()(double a, double b) const { return a != a ? a : (a < b || b != b) ? b : a; }
};

// e^x accurate to 1e-12 for results rounded to f32 or less; the library's for f64.
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

// How a row is reduced.
struct ReduceHow {
  Reduce kind = Reduce::sum;
  double parameter = 0;         // variance: correction; norm: p
  bool whole = false;           // sums of integers
  Element from = Element::f32;  // of the numbers
  int64_t count = 1;            // of a row
};

// The destinations: views of the kept axes.
struct ReduceTo {
  View to;
  View mean;   // variance: receives the mean; none = no data
  View index;  // largest, smallest: the position of the first such element, for one axis
};

struct Extreme {
  double value;
  int64_t whole, index;  // index -1 = none yet
};
struct BetterExtreme {
  bool largest, whole;
  SG_FN bool better(const Extreme& a, const Extreme& b) const {  // whether a beats b
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
  int endless;  // norms of order infinity: 1, of order -infinity: -1
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

SG_FN double power_of(double x, double p) {
  const double a = math::abs(x);
  if (p == 2) return a * a;
  if (p == 1) return a;
  if (p == 0) return a != 0;
  return p - p != 0 ? a : ::pow(a, p);
}

// An element of a row, `x`, provides re(), im(), its integer value, and whether it is nonzero.
template <class Number>
SG_FN Partial partial_of(const ReduceHow& how, const Number& x) {
  switch (how.kind) {
    case Reduce::any:
    case Reduce::all:
    case Reduce::count: return {0, 0, x.is_true()};
    case Reduce::norm: return {power_of(is_complex(how.from) ? ::hypot(x.re(), x.im()) : x.re(), how.parameter), 0, 0};
    case Reduce::nan_sum: {
      if (how.whole) return {0, 0, x.whole()};
      const double number = x.re();
      return {number != number ? 0 : number, 0, 0};
    }
    default:
      if (how.whole) return {0, 0, x.whole()};
      return {x.re(), is_complex(how.from) ? x.im() : 0, 0};
  }
}

// --- rows: `number(i)` returns element i ---

template <class Team, class Row>
SG_FN Partial reduce_partials(const Team& team, const ReduceHow& how, const Row& number) {
  const double p = how.parameter;
  const int endless = how.kind == Reduce::norm && p - p != 0 ? (p > 0 ? 1 : -1) : 0;
  const MergePartial merge{how.kind, endless};
  const bool unit = how.kind == Reduce::product, flag = how.kind == Reduce::all;
  auto part = team.each([&](int lane) {
    Partial acc{unit ? 1.0 : endless < 0 ? math::infinity() : 0.0, 0, unit || flag};
    for (int64_t i = lane; i < how.count; i += Team::kWidth) acc = merge(acc, partial_of(how, number(i)));
    return acc;
  });
  return team.reduce(part, merge);
}

SG_FN void write_partial(const View& to, int64_t offset, const Partial& p, bool whole) {
  if (whole) return write_whole(to, offset, p.whole);
  if (to.element == Element::c64)
    at<float>(to, 2 * offset) = static_cast<float>(p.re), at<float>(to, 2 * offset + 1) = static_cast<float>(p.im);
  else if (to.element == Element::c128) at<double>(to, 2 * offset) = p.re, at<double>(to, 2 * offset + 1) = p.im;
  else write<double>(to, offset, p.re);
}

template <class Team, class Row>
SG_FN void reduce_extreme(const Team& team, const ReduceHow& how, const ReduceTo& to, int64_t row, const Row& number) {
  const bool whole = !is_floating(how.from);
  const BetterExtreme pick{how.kind == Reduce::largest, whole};
  auto part = team.each([&](int lane) {
    Extreme best{0, 0, -1};
    for (int64_t i = lane; i < how.count; i += Team::kWidth) {
      const auto x = number(i);
      best = pick(best, whole ? Extreme{0, x.whole(), i} : Extreme{x.re(), 0, i});
    }
    return best;
  });
  const Extreme best = team.reduce(part, pick);
  team.each([&](int lane) {
    if (lane != 0) return;
    if (to.to.data && whole) write_whole(to.to, offset_of(to.to, row), best.whole);
    else if (to.to.data) write<double>(to.to, offset_of(to.to, row), best.value);
    if (to.index.data) write_whole(to.index, offset_of(to.index, row), best.index);
  });
}

template <class Team, class Row>
SG_FN double spread_around(const Team& team, const ReduceHow& how, double center, double center_im, const Row& number) {
  const bool pairs = is_complex(how.from);
  auto part = team.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < how.count; i += Team::kWidth) {
      const auto z = number(i);
      const double x = z.re() - center, y = pairs ? z.im() - center_im : 0;
      acc += x * x + y * y;
    }
    return acc;
  });
  return team.reduce(part, Sum());
}

template <class Team, class Row>
SG_FN double row_largest(const Team& team, int64_t count, const Row& number) {
  auto part = team.each([&](int lane) {
    double most = -math::infinity();
    for (int64_t i = lane; i < count; i += Team::kWidth) most = Larger()(most, number(i).re());
    return most;
  });
  return team.reduce(part, Larger());
}

template <class Team, class Row, class LastRow>
SG_FN double reduce_logsumexp(const Team& team, const ReduceHow& how, const View& to, const Row& number,
                              const LastRow& last) {
  const double most = row_largest(team, how.count, number), shift = most - most == 0 ? most : 0;
  auto part = team.each([&](int lane) {
    double acc = 0;
    for (int64_t i = lane; i < how.count; i += Team::kWidth) acc += exp_of(to, last(i).re() - shift);
    return acc;
  });
  return shift + log_of(to, team.reduce(part, Sum()));
}

SG_FN double finish_norm(double sum, double p) {
  return p == 2 ? ::sqrt(sum) : p == 1 || p == 0 || p - p != 0 ? sum : ::pow(sum, 1 / p);
}

// Whether numbers are needed twice: then first through `number`, finally through `last`.
constexpr bool takes_two_passes(Reduce kind) {
  return kind == Reduce::variance || kind == Reduce::deviation || kind == Reduce::logsumexp;
}

// Each number is requested once through `last`, by one lane; before that once through `number`, if it takes two passes.
template <class Team, class Row, class LastRow>
SG_FN void reduce_row(const Team& team, const ReduceHow& how, const ReduceTo& to, int64_t row, const Row& number,
                      const LastRow& last) {
  if (how.kind == Reduce::largest || how.kind == Reduce::smallest) return reduce_extreme(team, how, to, row, last);
  if (how.kind == Reduce::logsumexp) {
    const double sum = reduce_logsumexp(team, how, to.to, number, last);
    team.each([&](int lane) {
      if (lane == 0) write<double>(to.to, offset_of(to.to, row), sum);
    });
    return;
  }
  const bool spreads = how.kind == Reduce::variance || how.kind == Reduce::deviation;
  Partial total = spreads ? reduce_partials(team, how, number) : reduce_partials(team, how, last);
  const double n = static_cast<double>(how.count), mean = total.re / n, mean_im = total.im / n;
  if (how.kind == Reduce::mean) total = {mean, mean_im, 0};
  if (how.kind == Reduce::norm) total.re = finish_norm(total.re, how.parameter);
  if (spreads) {
    const double left = n - how.parameter;
    total.re = spread_around(team, how, mean, mean_im, last) / (left > 0 ? left : 0);
    if (how.kind == Reduce::deviation) total.re = ::sqrt(total.re);
  }
  const bool whole = how.whole || how.kind == Reduce::any || how.kind == Reduce::all || how.kind == Reduce::count;
  team.each([&](int lane) {
    if (lane != 0) return;
    write_partial(to.to, offset_of(to.to, row), total, whole);
    if (to.mean.data) write_partial(to.mean, offset_of(to.mean, row), {mean, mean_im, 0}, false);
  });
}

}  // namespace sg::cuda
