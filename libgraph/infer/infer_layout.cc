#include "libgraph/infer/infer_layout.h"

namespace sg {

bool is_channels_last(Sizes& sizes, const Type& t) {
  size_t rank = t.shape.size();
  if ((rank != 4 && rank != 5) || sizes.is(t.stride[1], 0)) return false;
  std::vector<size_t> order{1};  // innermost first
  for (size_t axis = rank - 1; axis >= 2; --axis) order.push_back(axis);
  order.push_back(0);
  Expr least = sizes.number(0);
  for (size_t axis : order) {  // no if only sizes of 1 could tell
    if (sizes.is(t.shape[axis], 0) || (axis == 0 && sizes.same(least, t.stride[1]))) return false;
    if (!sizes.same(t.stride[axis], least) && sizes.compare(t.stride[axis], least) <= 0) return false;
    least = t.stride[axis];
    if (!sizes.is(t.shape[axis], 1)) least = sizes.exprs().mul(least, t.shape[axis]);
  }
  return true;
}

Exprs in_format_of(InferCall& c, const Type& like, const Exprs& shape) {
  bool last = like.shape.size() == shape.size() && is_channels_last(c.sizes, like);
  return last ? c.sizes.channels_last(shape) : c.sizes.contiguous(shape);
}

Status give_copy(InferCall& c, const Type& self) {
  bool shares = false;
  for (size_t i = 0; i < self.shape.size(); ++i)
    shares = shares || (c.sizes.is(self.stride[i], 0) && !c.sizes.is(self.shape[i], 1));
  if (shares) return c.give(self.dtype, self.shape, c.sizes.preserved(self), self);
  return c.give(self);
}

}  // namespace sg
