// Diagonals: read, written, made to matrices.
#include <algorithm>
#include <cstdlib>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

// Zeros, with `self` on a diagonal: its last dimension becomes two.
ValueId diagonal_of_zeros(CompositeCall& c, ValueId self, int64_t offset, int dim1, int dim2) {
  int rank = c.rank(self) + 1;
  Expr length = c.exprs().add(c.extent(self, -1), c.exprs().constant(std::abs(offset)));
  ArgList shape = c.shape(self);
  if (shape.empty()) return c.fail("needs at least one dimension"), self;
  shape.pop_back();
  dim1 = c.wrap(dim1, rank), dim2 = c.wrap(dim2, rank);
  if (dim1 == dim2) return c.fail("the two dimensions are one"), self;
  shape.insert(shape.begin() + std::min(dim1, dim2), c.as_arg(length));
  shape.insert(shape.begin() + std::max(dim1, dim2), c.as_arg(length));
  ValueId zeros = c.zeros(shape, self);
  c.make("copy_", {c.make("diagonal", {zeros, offset, dim1, dim2}), self});
  return zeros;
}

}  // namespace

void diag_embed(CompositeCall& c) {
  c.give(diagonal_of_zeros(c, c.tensor("self"), c.integer("offset"), static_cast<int>(c.integer("dim1")),
                           static_cast<int>(c.integer("dim2"))));
}

void diag(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (c.rank(self) == 1) return c.give(diagonal_of_zeros(c, self, c.integer("diagonal"), 0, 1));
  if (c.rank(self) != 2) return c.fail("needs a vector or a matrix");
  c.give(c.make("clone", {c.make("diagonal", {self, c.integer("diagonal"), 0, 1})}));
}

void diagflat(CompositeCall& c) {
  ValueId flat = c.make("reshape", {c.make("contiguous", {c.tensor("self")}), Numbers{-1}});
  c.give(diagonal_of_zeros(c, flat, c.integer("offset"), 0, 1));
}

void linalg_diagonal(CompositeCall& c) {
  c.give(c.make("diagonal", {c.tensor("A"), c.integer("offset"), c.integer("dim1"), c.integer("dim2")}));
}

void diagonal_scatter(CompositeCall& c) {
  ValueId out = c.make("clone", {c.tensor("self")});
  c.make("copy_",
         {c.make("diagonal", {out, c.integer("offset"), c.integer("dim1"), c.integer("dim2")}), c.tensor("src")});
  c.give(out);
}

void diagonal_backward(CompositeCall& c) {
  ValueId out = c.zeros(c.sizes("input_sizes"), c.tensor("grad_output"));
  c.make("copy_", {c.make("diagonal", {out, c.integer("offset"), c.integer("dim1"), c.integer("dim2")}),
                   c.tensor("grad_output")});
  c.give(out);
}

}  // namespace sg::composite
