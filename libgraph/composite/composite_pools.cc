// Pooling as in Inductor's decompositions: the position of a maximum within its window is kept, in one byte. Fractional
// pooling.
#include <algorithm>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

using PoolAxes = std::vector<Expr>;

PoolAxes exprs_of(CompositeCall& c, std::string_view name) {
  PoolAxes out;
  for (const Arg& a : c.sizes(name)) out.push_back(c.as_expr(a));
  return out;
}

// The start of each window along one axis of `shaped`.
ValueId window_starts(CompositeCall& c, ValueId shaped, int axis, Expr stride, Expr padding) {
  ArgList shape(static_cast<size_t>(c.rank(shaped)), Arg::integer(1));
  shape[static_cast<size_t>(axis)] = c.size(shaped, axis);
  ValueId count = c.make("arange", {c.size(shaped, axis), c.key("dtype", DType::i64),
                                    c.key("device", Arg::text(ArgKind::device, c.type(shaped).device))});
  count = c.make("mul.Tensor", {c.make("view", {count, shape}), c.as_arg(stride)});
  return c.make("sub.Tensor", {count, c.as_arg(padding)});
}

// Splits a flat index into a box of these sizes into one index per axis.
Values along_axes(CompositeCall& c, ValueId flat, const PoolAxes& sizes) {
  Values out;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    Expr rest = c.exprs().constant(1);
    for (size_t k = i + 1; k < sizes.size(); ++k) rest = c.exprs().mul(rest, sizes[k]);
    out.push_back(c.make("floor_divide.Scalar", {flat, c.as_arg(rest)}));
    flat = c.make("sub.Tensor", {flat, c.make("mul.Tensor", {out.back(), c.as_arg(rest)})});
  }
  out.push_back(flat);
  return out;
}

ValueId counted(CompositeCall& c, const Values& places, const PoolAxes& sizes) {
  ValueId flat = places[0];
  for (size_t i = 1; i < places.size(); ++i)
    flat = c.make("add.Tensor", {c.make("mul.Tensor", {flat, c.as_arg(sizes[i])}), places[i]});
  return flat;
}

struct Pooling {
  PoolAxes kernel, stride, padding, dilation;
};

bool fits(CompositeCall& c, const Pooling& p, ValueId v) {
  const size_t axes = p.kernel.size();
  if (axes < 1 || axes > 3 || static_cast<int>(axes) > c.rank(v) || p.stride.size() != axes ||
      p.padding.size() != axes || p.dilation.size() != axes)
    c.fail("needs sizes and steps for each axis of its windows");
  return !c.failed();
}

ValueId offsets_of(CompositeCall& c, ValueId indices, const Pooling& p, const PoolAxes& input) {
  const int from = c.rank(indices) - static_cast<int>(input.size());
  Values places = along_axes(c, indices, input);
  for (size_t i = 0; i < places.size(); ++i) {
    ValueId starts = window_starts(c, indices, from + static_cast<int>(i), p.stride[i], p.padding[i]);
    places[i] = c.make("floor_divide.Scalar", {c.make("sub.Tensor", {places[i], starts}), c.as_arg(p.dilation[i])});
  }
  return c.make("_to_copy", {counted(c, places, p.kernel), c.key("dtype", DType::i8)});
}

void give_indices(CompositeCall& c, const Pooling& p, const PoolAxes& input) {
  ValueId offsets = c.tensor("self");
  if (c.dtype_of(offsets) == DType::i64) return c.give(offsets);  // left as indices by max_pool_with_offsets
  if (!fits(c, p, offsets)) return;
  const int from = c.rank(offsets) - static_cast<int>(input.size());
  Values places = along_axes(c, c.make("_to_copy", {offsets, c.key("dtype", DType::i64)}), p.kernel);
  for (size_t i = 0; i < places.size(); ++i) {
    ValueId starts = window_starts(c, offsets, from + static_cast<int>(i), p.stride[i], p.padding[i]);
    places[i] = c.make("add.Tensor", {starts, c.make("mul.Tensor", {places[i], c.as_arg(p.dilation[i])})});
  }
  c.give(counted(c, places, input));
}

}  // namespace

// If everything that reads the offsets turns them back into indices, they stay indices.
void max_pool_with_offsets(CompositeCall& c) {
  ValueId self = c.tensor("self");
  const Pooling p{exprs_of(c, "kernel_size"), exprs_of(c, "stride"), exprs_of(c, "padding"), exprs_of(c, "dilation")};
  if (!fits(c, p, self)) return;
  if (p.kernel.size() == 1) return c.fail("needs windows of two or three axes");
  Values pooled = c.make_all(
      p.kernel.size() == 2 ? "max_pool2d_with_indices" : "max_pool3d_with_indices",
      {self, c.arg("kernel_size"), c.arg("stride"), c.arg("padding"), c.arg("dilation"), c.arg("ceil_mode")});
  if (c.failed()) return;
  c.give(pooled[0]);
  if (c.is_read_only_by(1, "offsets_to_indices")) return c.give_own(pooled[1]);
  PoolAxes input;
  for (int i = -static_cast<int>(p.kernel.size()); i < 0; ++i) input.push_back(c.extent(self, i));
  c.give(offsets_of(c, pooled[1], p, input));
}

void max_pool_offsets_to_indices(CompositeCall& c) {
  give_indices(c, {exprs_of(c, "kernel_size"), exprs_of(c, "stride"), exprs_of(c, "padding"), exprs_of(c, "dilation")},
               exprs_of(c, "input_size"));
}

// The form of torch 2.6 and 2.7: two-axis windows, of which only the last sizes matter.
void max_pool2d_offsets_to_indices(CompositeCall& c) {
  const Expr one = c.exprs().constant(1);
  give_indices(c, {{one, c.as_expr(c.arg("kernel_w"))}, exprs_of(c, "stride"), exprs_of(c, "padding"), {one, one}},
               {one, c.as_expr(c.arg("input_w"))});
}

// --- fractional pooling: windows of one size, which begin where a random number of each plane and axis says ---

namespace {

struct Fractional {
  int axes;
  ValueId input;           // [batch, channels, sizes ..]
  Numbers kernel, output;  // by axis
};

Fractional fractional_of(CompositeCall& c, int axes) {
  Fractional f{axes, c.tensor("self"), c.integers("kernel_size"), c.integers("output_size")};
  const int rank = c.rank(f.input);
  if (rank != axes + 1 && rank != axes + 2) c.fail("needs planes, and the axis of channels");
  for (Numbers* n : {&f.kernel, &f.output}) {
    if (n->size() == 1) n->resize(static_cast<size_t>(axes), (*n)[0]);
    if (n->size() != static_cast<size_t>(axes) || std::ranges::any_of(*n, [](int64_t x) { return x < 1; }))
      c.fail("needs a size of windows and of results for each axis");
  }
  if (c.failed()) return f;
  for (int k = 0; k < axes; ++k) {
    const auto size = c.exprs().constant_value(c.extent(f.input, rank - axes + k));
    const auto at = static_cast<size_t>(k);
    if (size && (f.kernel[at] > *size || f.output[at] > *size - f.kernel[at] + 1))
      c.fail("has more windows than begin in its input");
  }
  if (rank == axes + 1) f.input = c.make("unsqueeze", {f.input, 0});
  return f;
}

PartArg place_of(CompositeCall& c, ValueId v) { return c.key("device", Arg::text(ArgKind::device, c.type(v).device)); }

// [batch, channels, windows]: where they begin along axis k. All but the last are spaced evenly, by a step that is not
// whole, in the input's element type; the last one ends where the input does.
ValueId fractional_starts(CompositeCall& c, const Fractional& f, size_t k, ValueId sample) {
  const int64_t count = f.output[k];
  const Expr last = c.exprs().sub(c.extent(f.input, static_cast<int>(k) + 2), c.exprs().constant(f.kernel[k]));
  const PartArg place = place_of(c, f.input), dtype = c.key("dtype", c.dtype_of(f.input));
  ValueId i = c.make("arange", {count, dtype, place});
  if (count == 1)
    return c.make("full", {ArgList{c.size(f.input, 0), c.size(f.input, 1), Arg::integer(1)}, c.as_arg(last),
                           c.key("dtype", DType::i64), place});
  ValueId step = c.make("full", {ArgList(), c.as_arg(last), dtype, place});
  step = c.make("div.Tensor", {step, c.make("full", {ArgList(), count - 1, dtype, place})});
  auto whole = [&](ValueId v) { return c.make("to.dtype", {c.make("mul.Tensor", {v, step}), DType::i64}); };
  ValueId starts = c.make("sub.Tensor", {whole(c.make("add.Tensor", {i, sample})), whole(sample)});
  return c.make("where.ScalarOther", {c.make("lt.Scalar", {i, count - 1}), starts, c.as_arg(last)});
}

// Of each window the maximum and its place in the plane; the first of equal ones, the last of NaNs.
void give_fractional(CompositeCall& c, int axes) {
  const Fractional f = fractional_of(c, axes);
  ValueId samples = c.tensor("random_samples"), place;  // [batch, channels, windows .., elements ..]
  if (c.failed() || c.rank(samples) != 3 || c.dtype_of(samples) != c.dtype_of(f.input))
    return c.fail("needs a sample for each plane and axis, of the input's type");
  const Arg batch = c.size(f.input, 0), channels = c.size(f.input, 1);
  for (size_t k = 0; k < f.kernel.size(); ++k) {
    // PyTorch's order of the samples: width before height, but depth, height, width.
    const int64_t column = axes == 2 ? 1 - static_cast<int64_t>(k) : static_cast<int64_t>(k);
    ValueId starts = fractional_starts(c, f, k, c.make("slice.Tensor", {samples, 2, column, column + 1}));
    ArgList shape(static_cast<size_t>(2 + 2 * axes), Arg::integer(1)), within = shape;
    shape[0] = batch, shape[1] = channels, shape[2 + k] = Arg::integer(f.output[k]);
    within[2 + k + static_cast<size_t>(axes)] = Arg::integer(f.kernel[k]);
    ValueId offsets = c.make("arange", {f.kernel[k], c.key("dtype", DType::i64), place_of(c, f.input)});
    ValueId along = c.make("add.Tensor", {c.make("view", {starts, shape}), c.make("view", {offsets, within})});
    if (k > 0) place = c.make("mul.Tensor", {place, c.size(f.input, static_cast<int>(k) + 2)});
    place = k == 0 ? along : c.make("add.Tensor", {place, along});
  }
  int64_t windows = 1, elements = 1;
  for (int64_t n : f.output) windows *= n;
  for (int64_t n : f.kernel) elements *= n;
  const ArgList lines{batch, channels, Arg::integer(windows * elements)};
  const ArgList boxes{batch, channels, Arg::integer(windows), Arg::integer(elements)};
  place = c.make("reshape", {place, lines});
  ValueId flat = c.make("reshape", {f.input, ArgList{batch, channels, c.product(f.input, 2, 2 + axes)}});
  ValueId values = c.make("view", {c.make("gather", {flat, 2, place}), boxes});
  Values most = c.make_all("max.dim", {values, -1, true});
  ValueId order = c.make("arange", {elements, c.key("dtype", DType::i64), place_of(c, f.input)});
  ValueId last = c.make("where.ScalarOther", {c.make("isnan", {values}), order, -1});
  last = c.make("amax", {last, Numbers{-1}, true});
  ValueId chosen = c.make("where.self", {c.make("lt.Scalar", {last, 0}), most.back(), last});
  ValueId found = c.make("gather", {c.make("view", {place, boxes}), 3, chosen});
  ArgList shape = c.rank(c.tensor("self")) == axes + 2 ? ArgList{batch, channels} : ArgList{channels};
  for (int64_t n : f.output) shape.push_back(Arg::integer(n));
  c.give(c.make("view", {most[0], shape}));
  c.give(c.make("view", {found, shape}));
}

void give_fractional_backward(CompositeCall& c, int axes) {
  const Fractional f = fractional_of(c, axes);
  if (c.failed()) return;
  ArgList lines{c.size(f.input, 0), c.size(f.input, 1), Arg::integer(-1)};
  auto flat = [&](std::string_view name) {
    ValueId v = c.tensor(name);
    if (c.rank(v) != c.rank(c.tensor("self"))) c.fail("needs a gradient and indices of as many dimensions");
    lines[2] = c.product(v, c.rank(v) - axes, c.rank(v));
    return c.make("reshape", {v, lines});
  };
  ValueId indices = flat("indices"), grad = flat("grad_output");
  lines[2] = c.product(f.input, 2, 2 + axes);
  ValueId sums = c.make("scatter_add", {c.zeros(lines, grad), 2, indices, grad});
  c.give(c.make("view", {sums, c.shape(c.tensor("self"))}));
}

}  // namespace

void fractional_max_pool2d(CompositeCall& c) { give_fractional(c, 2); }
void fractional_max_pool3d(CompositeCall& c) { give_fractional(c, 3); }
void fractional_max_pool2d_backward(CompositeCall& c) { give_fractional_backward(c, 2); }
void fractional_max_pool3d_backward(CompositeCall& c) { give_fractional_backward(c, 3); }

}  // namespace sg::composite
