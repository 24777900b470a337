#include "libgraph/infer/infer_planes.h"

#include "libgraph/infer/infer_layout.h"

namespace sg::infer {

// The number of spatial axes: 2 for "aten.max_pool2d_with_indices.default".
size_t axes_of(const InferCall& c) {
  for (size_t i = 1; i < c.op.name.size(); ++i)
    if (c.op.name[i] == 'd' && c.op.name[i - 1] >= '1' && c.op.name[i - 1] <= '3')
      return static_cast<size_t>(c.op.name[i - 1] - '0');
  return 2;
}

Result<const Type*> planes(InferCall& c, std::string_view name) {
  SG_ASSIGN(const Type* t, c.tensor(name));
  size_t rank = t->shape.size(), axes = axes_of(c);
  if (rank != axes + 1 && rank != axes + 2)
    return c.fail("needs " + std::to_string(axes + 1) + " or " + std::to_string(axes + 2) + " dimensions");
  return t;
}

bool is_batched(const InferCall& c, const Type& planes) { return planes.shape.size() == axes_of(c) + 2; }

Result<Exprs> each_axis(InferCall& c, std::string_view name, size_t axes) {
  SG_ASSIGN(Exprs list, c.size_list(name));
  if (list.size() == 1) list.assign(axes, list[0]);
  if (list.size() != axes) return c.fail("'" + std::string(name) + "' needs " + std::to_string(axes) + " numbers");
  return list;
}

namespace {

// How far the first element of a window can move.
Expr room_of(InferCall& c, Expr size, const AxisWindow& w) {
  ExprPool& e = c.sizes.exprs();
  Expr one = c.sizes.number(1);
  Expr span = e.add(size, e.mul(c.sizes.number(2), w.padding));
  return e.sub(e.sub(span, e.mul(w.dilation, e.sub(w.kernel, one))), one);
}

}  // namespace

Expr window_count(InferCall& c, Expr size, const AxisWindow& w) {
  ExprPool& e = c.sizes.exprs();
  return e.add(e.floordiv(room_of(c, size, w), w.stride), c.sizes.number(1));
}

Expr window_count_beyond(InferCall& c, Expr size, const AxisWindow& w) {
  ExprPool& e = c.sizes.exprs();
  Expr one = c.sizes.number(1);
  Expr count = e.add(e.floordiv(e.add(room_of(c, size, w), e.sub(w.stride, one)), w.stride), one);
  Expr start = e.mul(e.sub(count, one), w.stride);  // the last window has to start inside
  auto last = c.sizes.constant(start), limit = c.sizes.constant(e.add(size, w.padding));
  return last && limit && *last >= *limit ? e.sub(count, one) : count;
}

bool below(const InferCall& c, Expr e, int64_t limit) {
  auto value = c.sizes.constant(e);
  return value && *value < limit;
}

Exprs plane_strides(InferCall& c, const Type& like, const Exprs& shape) {
  return axes_of(c) == 2 && is_batched(c, like) ? in_format_of(c, like, shape) : c.sizes.contiguous(shape);
}

}  // namespace sg::infer
