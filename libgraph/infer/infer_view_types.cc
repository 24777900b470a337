// Views as another element type, and complex numbers as pairs of real ones.
#include "libgraph/infer/infer_rules.h"
#include "libgraph/infer/infer_view.h"

namespace sg::infer {
namespace {

// A view with another element type; `from` and `to` are bytes per element.
Result<Type> retyped(InferCall& c, const Type& self, DType dtype, int from, int to) {
  ExprPool& e = c.sizes.exprs();
  Type t = self;
  t.dtype = dtype;
  if (from == to) return t;
  if (t.shape.empty()) return c.fail("a tensor without dimensions cannot change its element size");
  if (c.is_outside(t.stride.back(), 1, 1) && c.is_outside(t.shape.back(), 0, 1))
    return c.fail("the last stride has to be 1");
  if (from > to) {
    Expr ratio = c.sizes.number(from / to);
    for (Expr& stride : t.stride) stride = e.mul(stride, ratio);
    t.stride.back() = c.sizes.number(1);
    t.shape.back() = e.mul(t.shape.back(), ratio);
    t.offset = e.mul(t.offset, ratio);
    return t;
  }
  Expr ratio = c.sizes.number(to / from);
  auto divides = [&](Expr x) { return c.sizes.constant(x).value_or(0) % (to / from) == 0; };
  if (!divides(t.shape.back())) return c.fail("the last size is not a multiple of the ratio of element sizes");
  if (!divides(t.offset) || !std::all_of(t.stride.begin(), t.stride.end() - 1, divides))
    return c.fail("an element of the view would begin within one of the tensor");
  for (Expr& stride : t.stride) stride = e.floordiv(stride, ratio);
  t.stride.back() = c.sizes.number(1);
  t.shape.back() = e.floordiv(t.shape.back(), ratio);
  t.offset = e.floordiv(t.offset, ratio);
  return t;
}

DType complex_of(DType t) { return t == DType::f64 ? DType::c128 : t == DType::f32 ? DType::c64 : DType::c32; }

// The real (0) or imaginary (1) parts of a complex tensor.
Status component(InferCall& c, int64_t which) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (!is_complex(self->dtype)) return which == 0 ? c.give(*self) : Status(c.fail("needs a complex tensor"));
  ExprPool& e = c.sizes.exprs();
  Type t = *self;
  t.dtype = real_part(self->dtype);
  for (Expr& stride : t.stride) stride = e.mul(stride, c.sizes.number(2));
  t.offset = e.add(e.mul(t.offset, c.sizes.number(2)), c.sizes.number(which));
  return c.give(std::move(t));
}

}  // namespace

Status view_dtype(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  DType dtype = c.dtype("dtype").value_or(DType::none);
  if (dtype_bytes(dtype) <= 0 || dtype_bytes(self->dtype) <= 0) return c.fail("needs an element type");
  SG_ASSIGN(Type t, retyped(c, *self, dtype, dtype_bytes(self->dtype), dtype_bytes(dtype)));
  return c.give(std::move(t));
}

Status view_as_complex(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  if (self->dtype != DType::f64 && self->dtype != DType::f32 && self->dtype != DType::f16)
    return c.fail("there are complex numbers of f64, f32 and f16 alone");
  if (!c.sizes.is(self->shape.back(), 2)) return c.fail("needs pairs of numbers");
  ExprPool& e = c.sizes.exprs();
  auto is_odd = [&](Expr x) { return c.sizes.constant(x).value_or(0) % 2 != 0; };
  if (c.is_outside(self->stride.back(), 1, 1)) return c.fail("the last stride has to be 1");
  bool splits = is_odd(self->offset);
  for (size_t d = 0; d + 1 < self->shape.size(); ++d)
    splits |= is_odd(self->stride[d]) && !c.sizes.is(self->shape[d], 1);  // the stride of one row takes nobody anywhere
  if (splits) return c.fail("a pair would begin within another");
  Type t = *self;
  t.dtype = complex_of(self->dtype);
  t.shape.pop_back();
  t.stride.pop_back();
  for (Expr& stride : t.stride) stride = e.floordiv(stride, c.sizes.number(2));
  t.offset = e.floordiv(t.offset, c.sizes.number(2));
  return c.give(std::move(t));
}

Status view_as_real(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (!is_complex(self->dtype)) return c.fail("needs a complex tensor");
  ExprPool& e = c.sizes.exprs();
  Type t = *self;
  t.dtype = real_part(self->dtype);
  for (Expr& stride : t.stride) stride = e.mul(stride, c.sizes.number(2));
  t.offset = e.mul(t.offset, c.sizes.number(2));
  t.shape.push_back(c.sizes.number(2));
  t.stride.push_back(c.sizes.number(1));
  return c.give(std::move(t));
}

Status real(InferCall& c) { return component(c, 0); }
Status imag(InferCall& c) { return component(c, 1); }

}  // namespace sg::infer
