// Moments, extremes, areas and other derived reductions; functions defined by others.
#include <cmath>
#include <limits>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

// The arguments of a reduction over `dim`, in the form of the other reductions.
PartArgs over_dims(CompositeCall& c, ValueId v) {
  return {v, c.has("dim") ? PartArg(c.sizes("dim")) : PartArg(ArgList()), c.flag("keepdim")};
}

Arg correction_of(CompositeCall& c) {
  if (c.has("correction")) return c.arg("correction");
  return Arg::integer(c.has("unbiased") && !c.flag("unbiased") ? 0 : 1);
}

void give_moments(CompositeCall& c, bool deviation) {
  ValueId self = c.tensor("self");
  Arg dim = c.arg("dim"), keep = c.has("keepdim") ? c.arg("keepdim") : Arg::boolean(false);
  PartArgs args{self, dim, c.key("correction", correction_of(c)), c.key("keepdim", keep)};
  Values both = c.make_all("var_mean.correction", args);
  c.give(deviation ? c.make("std.correction", args) : both[0]);
  c.give(both[1]);
}

ValueId neighbours(CompositeCall& c, ValueId y, int dim) {
  return c.make("add.Tensor",
                {c.make("slice.Tensor", {y, dim, 0, -1}), c.make("slice.Tensor", {y, dim, 1, Arg::none()})});
}

ValueId steps(CompositeCall& c, ValueId x, ValueId y, int dim) {  // distances between the points, shaped to go with y
  int at = c.wrap(c.rank(x) == 1 ? 0 : dim, c.rank(x));
  ValueId dx =
      c.make("sub.Tensor", {c.make("slice.Tensor", {x, at, 1, Arg::none()}), c.make("slice.Tensor", {x, at, 0, -1})});
  if (c.rank(x) != 1 || c.rank(y) <= 1) return dx;
  ArgList shape(static_cast<size_t>(c.rank(y)), Arg::integer(1));
  shape[static_cast<size_t>(dim)] = c.size(dx, 0);
  return c.make("view", {dx, shape});
}

void give_area(CompositeCall& c, bool cumulative) {
  ValueId y = c.tensor("y");
  int dim = c.wrap(c.integer("dim"), c.rank(y));
  if (c.failed() || c.rank(y) == 0) return c.fail("needs at least one dimension");
  ValueId pairs = neighbours(c, y, dim), x = c.has("x") ? c.tensor("x") : ValueId();
  if (!x.is_none()) pairs = c.make("mul.Tensor", {pairs, steps(c, x, y, dim)});
  ValueId area = cumulative ? c.make("cumsum", {pairs, dim}) : c.make("sum.dim_IntList", {pairs, Numbers{dim}});
  if (x.is_none()) area = c.make("mul.Scalar", {area, c.arg("dx")});
  c.give(c.make("div.Scalar", {area, 2.0}));
}

// The norm over all dimensions but `dim`, keeping them with size 1; for -1 over all dimensions, to a scalar.
ValueId norm_but(CompositeCall& c, ValueId v, double power, int64_t dim) {
  if (dim == -1) return c.make("linalg_vector_norm", {v, power});
  int kept = c.wrap(dim, c.rank(v));
  Numbers others;
  for (int i = 0; i < c.rank(v); ++i)
    if (i != kept) others.push_back(i);
  if (others.empty()) return c.make("abs", {v});  // an empty list would mean all dimensions
  return c.make("linalg_vector_norm", {v, power, others, true});
}

}  // namespace

void norm_except_dim(CompositeCall& c) {
  c.give(norm_but(c, c.tensor("v"), static_cast<double>(c.integer("pow")), c.integer("dim")));
}

void weight_norm(CompositeCall& c) {
  ValueId v = c.tensor("v"), g = c.tensor("g");
  c.give(c.make("mul.Tensor", {v, c.make("div.Tensor", {g, norm_but(c, v, 2.0, c.integer("dim"))})}));
}

void var_mean(CompositeCall& c) { give_moments(c, false); }
void std_mean(CompositeCall& c) { give_moments(c, true); }

void aminmax(CompositeCall& c) {
  PartArgs args = over_dims(c, c.tensor("self"));
  c.give(c.make("amin", args));
  c.give(c.make("amax", args));
}

void kthvalue(CompositeCall& c) {
  ValueId self = c.tensor("self");
  int dim = c.wrap(c.integer("dim"), c.rank(self));
  const Expr k = c.as_expr(c.arg("k"));  // k may be a size, as in a median of rows
  if (c.failed() || c.exprs().constant_value(k).value_or(1) < 1) return c.fail("'k' begins at 1");
  const Arg at = c.as_arg(c.exprs().sub(k, c.exprs().constant(1))), end = c.as_arg(k);
  for (ValueId v : c.make_all("sort", {self, dim, false})) {
    if (c.rank(self) == 0) c.give(v);
    else
      c.give(c.make("clone",
                    {c.flag("keepdim") ? c.make("slice.Tensor", {v, dim, at, end}) : c.make("select.int", {v, dim, at}),
                     c.memory_format("contiguous_format")}));
  }
}

void nanmean(CompositeCall& c) {
  ValueId self = c.tensor("self"), count = c.make("logical_not", {c.make("isnan", {self})});
  PartArgs dims = over_dims(c, count), args = over_dims(c, self);
  if (!c.has("dim")) dims[1] = args[1] = Arg::none();
  if (c.has("dtype")) args.push_back(c.key("dtype", c.arg("dtype")));
  c.give(c.make("div.Tensor", {c.make("nansum", args), c.make("sum.dim_IntList", dims)}));
}

void trace(CompositeCall& c) { c.give(c.make("sum", {c.make("diagonal", {c.tensor("self")})})); }

void count_nonzero_dims(CompositeCall& c) {
  c.give(c.make("sum.dim_IntList", {c.make("ne.Scalar", {c.tensor("self"), 0}), c.sizes("dim")}));
}

void renorm(CompositeCall& c) {
  ValueId self = c.tensor("self");
  int dim = c.wrap(c.integer("dim"), c.rank(self));
  Numbers others;
  for (int i = 0; i < c.rank(self); ++i)
    if (i != dim) others.push_back(i);
  if (others.empty()) return c.fail("needs at least two dimensions");
  ValueId norm = c.make("linalg_vector_norm", {self, c.arg("p"), others, true});
  ValueId scale = c.make("mul.Scalar", {c.make("reciprocal", {c.make("add.Scalar", {norm, 1e-7})}), c.arg("maxnorm")});
  ValueId factor = c.make("where.ScalarOther", {c.make("gt.Scalar", {norm, c.arg("maxnorm")}), scale, 1});
  c.give(c.make("contiguous", {c.make("mul.Tensor", {self, factor})}));
}

void area(CompositeCall& c) { give_area(c, false); }
void cumulative_area(CompositeCall& c) { give_area(c, true); }

void index_reduce(CompositeCall& c) {
  ValueId self = c.tensor("self"), index = c.tensor("index"), source = c.tensor("source");
  int dim = c.wrap(c.integer("dim"), c.rank(self));
  bool single = c.rank(self) == 0;
  if (single) self = c.make("reshape", {self, Numbers{1}}), source = c.make("reshape", {source, Numbers{1}});
  if (c.failed() || c.rank(source) != c.rank(self)) return c.fail("needs a source of its own rank");
  ArgList view(static_cast<size_t>(c.rank(self)), Arg::integer(1));
  view[static_cast<size_t>(dim)] = c.size(source, dim);
  ValueId spread = c.make("expand", {c.make("reshape", {index, view}), c.shape(source)});
  ValueId out = c.make("scatter_reduce.two",
                       {self, dim, spread, source, c.arg("reduce"), c.key("include_self", c.flag("include_self"))});
  c.give(single ? c.make("reshape", {out, Numbers()}) : out);
}

// --- writes and random numbers ---

// Where the entries of each row begin, of sorted rows.
void row_bounds(CompositeCall& c) {
  const ValueId rows = c.tensor("self");
  const int64_t size = c.integer("size");
  if (size < 0 || size > int64_t{1} << 40) return c.fail("'size' is out of range");
  const ValueId each = c.make("arange", {size + 1, c.key("dtype", c.dtype_of(rows))});
  c.give(c.make("searchsorted.Tensor", {rows, each, c.key("out_int32", c.has("out_int32") && c.flag("out_int32"))}));
}

void put(CompositeCall& c) {
  ValueId self = c.tensor("self");
  auto flat = [&](ValueId v) { return c.make("reshape", {v, Numbers{-1}}); };
  ValueId out = c.make("index_put",
                       {flat(self), Values{flat(c.tensor("index"))}, flat(c.tensor("source")), c.flag("accumulate")});
  c.give(c.make("copy", {c.make("clone", {self}), c.make("view", {out, c.shape(self)})}));  // keeps self's strides
}

// Normal numbers with the given mean and deviation; at least one of the two is a tensor.
void normal_around(CompositeCall& c) {
  const bool has_means = !c.arg("mean").is(ArgKind::floating), has_deviations = !c.arg("std").is(ArgKind::floating);
  ValueId shaped = has_means ? c.tensor("mean") : c.tensor("std");
  if (has_means && has_deviations) shaped = c.make("add.Tensor", {shaped, c.tensor("std")});
  ValueId noise = c.make("normal_functional", {shaped});
  noise = has_deviations ? c.make("mul.Tensor", {noise, c.tensor("std")}) : c.make("mul.Scalar", {noise, c.arg("std")});
  noise = has_means ? c.make("add.Tensor", {noise, c.tensor("mean")}) : c.make("add.Scalar", {noise, c.arg("mean")});
  c.give(c.make("contiguous", {noise}));
}

void normal_of_size(CompositeCall& c) {
  PartArgs args{c.sizes("size")};
  for (const char* name : {"dtype", "device"})
    if (c.has(name)) args.push_back(c.key(name, c.arg(name)));
  ValueId noise = c.make("mul.Tensor", {c.make("randn", args), c.arg("std")});
  c.give(c.make("add.Tensor", {noise, c.arg("mean")}));
}

// --- functions ---

namespace {

// The numbers from `start` to `end`, each a number or a tensor, in double: each is counted from the end that is nearer,
// as linspace does.
ValueId spread_between(CompositeCall& c) {
  const DType dtype = c.dtype("dtype").value_or(DType::f32);
  const int64_t steps = c.integer("steps");
  bool is_wide = is_complex(dtype);
  PartArgs place;
  if (c.has("device")) place.push_back(c.key("device", c.arg("device")));
  for (std::string_view name : {"start", "end"}) {
    if (!c.arg(name).is(ArgKind::value)) continue;
    const Type& type = c.type(c.tensor(name));
    if (!type.shape.empty()) c.fail("is made of numbers without dimensions only");
    is_wide = is_wide || is_complex(type.dtype);
    place = {c.key("device", Arg::text(ArgKind::device, type.device))};
  }
  if (c.failed() || steps < 0 || steps > int64_t{1} << 40) return c.fail("'steps' is out of range"), ValueId();
  const PartArg wide = c.key("dtype", is_wide ? DType::c128 : DType::f64);
  auto made = [&](std::string_view op, PartArgs args) {
    args.push_back(c.key("dtype", DType::f64));
    args.insert(args.end(), place.begin(), place.end());
    return c.make(op, args);
  };
  auto end_of = [&](std::string_view name) {
    ValueId v = c.arg(name).is(ArgKind::value) ? c.make("_to_copy", {c.tensor(name), wide})
                                               : made("full", {ArgList(), c.number(name)});
    return is_floating(dtype) || is_complex(dtype) || steps < 2 ? v : c.make("trunc", {v});
  };
  ValueId start = end_of("start"), end = end_of("end");
  if (c.failed()) return start;
  if (steps == 0) return made("arange", {0});
  if (steps == 1) return c.make("view", {start, Numbers{1}});
  ValueId step = c.make("div.Scalar", {c.make("sub.Tensor", {end, start}), static_cast<double>(steps - 1)});
  ValueId i = made("arange", {steps}), left = made("arange.start_step", {steps - 1, -1, -1});
  ValueId up = c.make("add.Tensor", {start, c.make("mul.Tensor", {i, step})});
  ValueId down = c.make("sub.Tensor", {end, c.make("mul.Tensor", {left, step})});
  PartArgs count{steps};
  count.insert(count.end(), place.begin(), place.end());
  return c.make("where.self", {c.make("lt.Scalar", {c.make("arange", count), steps / 2}), up, down});
}

void give_spread(CompositeCall& c, ValueId numbers) {
  PartArgs args{numbers, c.key("dtype", c.dtype("dtype").value_or(DType::f32))};
  if (c.has("device")) args.push_back(c.key("device", c.arg("device")));
  c.give(c.make("_to_copy", args));
}

}  // namespace

void linspace_between(CompositeCall& c) { give_spread(c, spread_between(c)); }
void logspace(CompositeCall& c) { give_spread(c, c.make("pow.Scalar", {c.number("base"), spread_between(c)})); }

// By the bits of a double, which has all numbers of narrower types as normal ones; its own subnormal ones are scaled.
// The exponent of what is not finite is 0, as in C.
void frexp(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (c.failed() || !is_floating(c.dtype_of(self))) return c.fail("is of floating elements only");
  constexpr int64_t kField = 2047, kHalf = 1022, kShift = 54;
  ValueId wide = c.make("to.dtype", {self, DType::f64});
  ValueId small = c.make("lt.Scalar", {c.make("abs", {wide}), std::numeric_limits<double>::min()});
  ValueId scaled = c.make("mul.Scalar", {wide, std::ldexp(1.0, static_cast<int>(kShift))});
  ValueId bits = c.make("view.dtype", {c.make("where.self", {small, scaled, wide}), DType::i64});
  ValueId field = c.make("bitwise_right_shift.Tensor_Scalar", {bits, 52});
  field = c.make("bitwise_and.Scalar", {field, kField});
  ValueId is_plain = c.make("logical_and", {c.make("lt.Scalar", {field, kField}), c.make("gt.Scalar", {field, 0})});
  ValueId half = c.make("bitwise_or.Scalar", {c.make("bitwise_and.Scalar", {bits, ~(kField << 52)}), kHalf << 52});
  ValueId mantissa = c.make("where.self", {is_plain, c.make("view.dtype", {half, DType::f64}), wide});
  ValueId exponent = c.make("sub.Tensor", {field, c.make("mul.Scalar", {small, kShift})});
  exponent = c.make("where.ScalarOther", {is_plain, c.make("sub.Scalar", {exponent, kHalf}), 0});
  c.give(c.make("_to_copy", {mantissa, c.key("dtype", c.dtype_of(self))}));
  c.give(c.make("_to_copy", {exponent, c.key("dtype", DType::i32)}));
}

// The power has the type of what it multiplies, where its exponents are integers.
void ldexp(CompositeCall& c) {
  const ValueId self = c.tensor("self"), other = c.tensor("other");
  ValueId power = c.make("pow.Scalar", {2.0, other});
  if (is_floating(c.dtype_of(self)) && is_integral(c.dtype_of(other)))
    power = c.make("to.dtype", {power, c.dtype_of(self)});
  c.give(c.make("mul.Tensor", {self, power}));
}

void float_power(CompositeCall& c) {
  auto wide = [&](std::string_view name) -> PartArg {
    if (!c.arg(name).is(ArgKind::value)) return c.arg(name);
    ValueId v = c.tensor(name);
    return c.make("to.dtype", {v, is_complex(c.dtype_of(v)) ? DType::c128 : DType::f64});
  };
  bool base = c.arg("self").is(ArgKind::value), exponent = c.arg("exponent").is(ArgKind::value);
  c.give(c.make(!base      ? "pow.Scalar"
                : exponent ? "pow.Tensor_Tensor"
                           : "pow.Tensor_Scalar",
                {wide("self"), wide("exponent")}));
}

void isreal(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (!is_complex(c.dtype_of(self))) return c.give(c.make("ones_like", {self, c.key("dtype", DType::boolean)}));
  c.give(c.make("eq.Scalar", {c.make("imag", {self}), 0}));
}

void ndtr(CompositeCall& c) {
  ValueId scaled = c.make("div.Scalar", {c.tensor("self"), std::sqrt(2.0)});
  c.give(c.make("mul.Scalar", {c.make("add.Scalar", {c.make("erf", {scaled}), 1}), 0.5}));
}

void mvlgamma(CompositeCall& c) {
  ValueId self = c.tensor("self");
  int64_t p = c.integer("p");
  if (c.failed() || p < 1) return c.fail("'p' begins at 1");
  double order = static_cast<double>(p);
  ValueId offsets = c.make(
      "arange.start_step",
      {-order * 0.5 + 0.5, 0.5, 0.5, c.key("dtype", is_floating(c.dtype_of(self)) ? c.dtype_of(self) : DType::f32)});
  ValueId sum =
      c.make("sum.dim_IntList",
             {c.make("lgamma", {c.make("add.Tensor", {c.make("unsqueeze", {self, -1}), offsets})}), Numbers{-1}});
  c.give(c.make("add.Scalar", {sum, order * (order - 1) * std::log(M_PI) * 0.25}));
}

// --- quantiles: interpolated between the two sorted elements around a rank ---

namespace {

// Sorted, with the reduced dimension last (or all elements flattened); with `keepdim`, size 1 for each removed
// dimension.
ValueId sorted_rows(CompositeCall& c) {
  ValueId self = c.tensor("self");
  const int rank = c.rank(self);
  const bool is_whole = !c.has("dim") || rank == 0;
  const int dim = is_whole ? 0 : c.wrap(c.integer("dim"), rank);
  if (is_whole) self = c.make("reshape", {self, Numbers{-1}});
  else if (dim != rank - 1) self = c.make("movedim.int", {self, dim, -1});
  ValueId sorted = c.make("sort", {self, -1});
  const int kept = !c.flag("keepdim") ? 0 : is_whole ? rank : 1;
  for (int i = 0; i < kept; ++i) sorted = c.make("unsqueeze", {sorted, dim});
  return sorted;
}

// The (fractional) ranks of the quantiles in each row. In a row with NaNs all quantiles are NaN, or its NaNs are
// skipped.
ValueId ranks_in(CompositeCall& c, ValueId sorted, ValueId q, bool skips_nan) {
  const Arg last = c.as_arg(c.exprs().sub(c.extent(sorted, -1), c.exprs().constant(1)));
  ValueId is_nan = c.make("isnan", {sorted});
  if (skips_nan) {
    ValueId numbers = c.make("sum.dim_IntList", {c.make("logical_not", {is_nan}), Numbers{-1}, true});
    return c.make("clamp_min", {c.make("mul.Tensor", {q, c.make("sub.Scalar", {numbers, 1})}), 0});
  }
  ValueId any = c.make("any.dim", {is_nan, -1, true});
  ArgList shape = c.shape(any);
  shape.back() = c.size(q, 0);
  ValueId ranks = c.make("expand", {c.make("mul.Tensor", {q, last}), shape});
  return c.make("masked_fill.Scalar", {ranks, any, last});
}

ValueId whole(CompositeCall& c, ValueId v) { return c.make("to.dtype", {v, DType::i64}); }

ValueId values_at(CompositeCall& c, ValueId sorted, ValueId ranks) {
  const std::string mode = c.text("interpolation");
  if (mode == "lower") ranks = c.make("floor", {ranks});
  else if (mode == "higher") ranks = c.make("ceil", {ranks});
  else if (mode == "nearest") ranks = c.make("round", {ranks});
  ValueId below = whole(c, ranks), values = c.make("gather", {sorted, -1, below});
  if (mode != "linear" && mode != "midpoint") return values;
  ValueId weights = mode == "midpoint" ? c.make("full_like", {ranks, 0.5}) : c.make("sub.Tensor", {ranks, below});
  ValueId above = c.make("gather", {sorted, -1, whole(c, c.make("ceil", {ranks}))});
  return c.make("lerp.Tensor", {values, above, weights});
}

void give_quantiles(CompositeCall& c, ValueId q, bool skips_nan) {
  if (c.failed()) return;
  if (c.rank(q) > 1) return c.fail("needs ranks of one dimension at most");
  const bool is_one = c.rank(q) == 0;
  ValueId sorted = sorted_rows(c);
  if (is_one) q = c.make("unsqueeze", {q, 0});
  ValueId out = values_at(c, sorted, ranks_in(c, sorted, q, skips_nan));
  if (is_one) c.give(c.make("squeeze.dim", {out, -1}));
  else c.give(c.make("movedim.int", {out, -1, 0}));
}

ValueId single_rank(CompositeCall& c) { return c.make("new_full", {c.tensor("self"), ArgList(), c.number("q")}); }

}  // namespace

void quantile(CompositeCall& c) { give_quantiles(c, c.tensor("q"), false); }
void nanquantile(CompositeCall& c) { give_quantiles(c, c.tensor("q"), true); }
void quantile_scalar(CompositeCall& c) { give_quantiles(c, single_rank(c), false); }
void nanquantile_scalar(CompositeCall& c) { give_quantiles(c, single_rank(c), true); }

}  // namespace sg::composite
