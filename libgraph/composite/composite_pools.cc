// Pooling as in Inductor's decompositions: the position of a maximum within its window is kept, in one byte.
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

}  // namespace sg::composite
