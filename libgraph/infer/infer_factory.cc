// Tensors created from sizes alone.
#include <algorithm>
#include <cmath>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

StrId device_of(InferCall& c) { return c.device("device").value_or(c.pool.strings.intern("cpu")); }

Status give_new(InferCall& c, DType dtype, Exprs shape) {
  Exprs stride = c.sizes.contiguous(shape);
  return c.give(c.make(dtype, std::move(shape), std::move(stride), device_of(c)));
}

// The element type of a tensor created from a number.
DType number_dtype(const InferCall& c, std::string_view name) {
  const Arg* arg = c.find(name);
  if (arg == nullptr) return DType::i64;
  const Type* type = c.type_of(*arg);
  if (arg->is(ArgKind::boolean) || (type != nullptr && type->kind == TypeKind::boolean)) return DType::boolean;
  if (arg->is(ArgKind::floating) || (type != nullptr && type->kind == TypeKind::floating)) return DType::f32;
  return arg->is(ArgKind::complex) ? DType::c64 : DType::i64;
}

// A number of arange: a whole one, of sizes perhaps, and a float.
struct Amount {
  Expr whole;
  double rest = 0;
};

std::optional<Amount> amount(InferCall& c, std::string_view name, int64_t otherwise) {
  const Arg* arg = c.find(name);
  if (arg == nullptr) return Amount{c.sizes.number(otherwise)};
  if (arg->is(ArgKind::floating)) return Amount{c.sizes.number(0), arg->as_float()};
  auto size = c.as_size(*arg);
  return size.ok() ? std::optional(Amount{*size}) : std::nullopt;
}

// It as a float, if no symbol is in it.
std::optional<double> as_double(const InferCall& c, const Amount& a) {
  auto whole = c.sizes.constant(a.whole);
  return whole ? std::optional(static_cast<double>(*whole) + a.rest) : std::nullopt;
}

constexpr double kMostParts = 65536;  // 2^16

// The number of whole steps that `distance` begins, where sizes are in it: exact for floats that are few parts of a
// power of two, such as those of arange(0.5, height). Invalid for others.
Expr steps_begun(InferCall& c, const Amount& distance, double step) {
  ExprPool& e = c.sizes.exprs();
  double parts = 1;
  auto is_whole = [&](double number) { return number * parts == std::floor(number * parts); };
  while (parts < kMostParts && !(is_whole(distance.rest) && is_whole(step))) parts *= 2;
  const bool is_small = std::abs(distance.rest) <= kMostParts && std::abs(step) <= kMostParts;
  if (!is_small || !is_whole(distance.rest) || !is_whole(step) || step == 0) return ExprPool::kInvalid;
  Expr total = e.add(e.mul(distance.whole, c.sizes.number(static_cast<int64_t>(parts))),
                     c.sizes.number(static_cast<int64_t>(distance.rest * parts)));
  if (step > 0) total = e.neg(total);
  return e.neg(e.floordiv(total, c.sizes.number(static_cast<int64_t>(std::abs(step) * parts))));
}

Status float_arange(InferCall& c, DType dtype) {
  auto start = amount(c, "start", 0), end = amount(c, "end", 0), step = amount(c, "step", 1);
  const std::optional<double> by = step ? as_double(c, *step) : std::nullopt;
  if (!start || !end || !by) return c.fail("its bounds have to be known numbers");
  const Amount distance{c.sizes.exprs().sub(end->whole, start->whole), end->rest - start->rest};
  const std::optional<double> known = as_double(c, distance);
  if (!known) {
    const Expr steps = steps_begun(c, distance, *by);
    if (c.sizes.exprs().is_invalid(steps)) return c.fail("its bounds have to be known numbers");
    return give_new(c, dtype, {steps});
  }
  double count = std::ceil(*known / *by);
  if (!(count >= 0 && count < 9e18)) return c.fail("its bounds and step contradict each other");
  return give_new(c, dtype, {c.sizes.number(static_cast<int64_t>(count))});
}

Result<Expr> integer_or(InferCall& c, std::string_view name, int64_t otherwise) {
  if (!c.given(name)) return c.sizes.number(otherwise);
  return c.size(name);
}

}  // namespace

Status factory(InferCall& c) {
  SG_ASSIGN(Exprs shape, c.size_list("size"));
  return give_new(c, c.dtype("dtype").value_or(DType::f32), std::move(shape));
}

Status full(InferCall& c) {
  SG_ASSIGN(Exprs shape, c.size_list("size"));
  return give_new(c, c.dtype("dtype").value_or(number_dtype(c, "fill_value")), std::move(shape));
}

Status empty_strided(InferCall& c) {
  SG_ASSIGN(Exprs shape, c.size_list("size"));
  SG_ASSIGN(Exprs stride, c.size_list("stride"));
  if (shape.size() != stride.size()) return c.fail("as many strides as sizes are needed");
  SG_ASSIGN(const Type* self, c.optional_tensor("self"));
  DType dtype = c.dtype("dtype").value_or(self != nullptr ? self->dtype : DType::f32);
  StrId device = c.device("device").value_or(self != nullptr ? self->device : device_of(c));
  return c.give(c.make(dtype, std::move(shape), std::move(stride), device));
}

Status empty_permuted(InferCall& c) {
  SG_ASSIGN(Exprs shape, c.size_list("size"));
  SG_ASSIGN(std::vector<int64_t> order, c.integers("physical_layout"));
  if (order.size() != shape.size()) return c.fail("a layout of as many dimensions is needed");
  Exprs stride(shape.size());
  std::vector<bool> seen(shape.size(), false);
  Expr step = c.sizes.number(1);
  for (size_t i = order.size(); i-- > 0;) {
    if (order[i] < 0 || order[i] >= static_cast<int64_t>(shape.size()) || seen[static_cast<size_t>(order[i])])
      return c.fail("the layout is not a permutation");
    size_t dim = static_cast<size_t>(order[i]);
    seen[dim] = true;
    stride[dim] = step;
    step = c.sizes.exprs().mul(step, c.sizes.at_least_one(shape[dim]));
  }
  return c.give(c.make(c.dtype("dtype").value_or(DType::f32), std::move(shape), std::move(stride), device_of(c)));
}

Status arange(InferCall& c) {
  bool floating = false;
  for (std::string_view name : {"start", "end", "step"}) floating = floating || number_dtype(c, name) == DType::f32;
  DType dtype = c.dtype("dtype").value_or(floating ? DType::f32 : DType::i64);
  if (floating) return float_arange(c, dtype);
  SG_ASSIGN(Expr start, integer_or(c, "start", 0));
  SG_ASSIGN(Expr end, integer_or(c, "end", 0));
  SG_ASSIGN(Expr step, integer_or(c, "step", 1));
  if (c.sizes.is(step, 0)) return c.fail("the step is 0");
  ExprPool& e = c.sizes.exprs();
  Expr count = e.sub(end, start);
  if (!c.sizes.is(step, 1)) count = e.neg(e.floordiv(e.neg(count), step));  // rounds up
  return give_new(c, dtype, {count});
}

Status linspace(InferCall& c) {
  SG_ASSIGN(Expr steps, c.size("steps"));
  return give_new(c, c.dtype("dtype").value_or(DType::f32), {steps});
}

Status eye(InferCall& c) {
  SG_ASSIGN(Expr rows, c.size("n"));
  Expr columns = rows;
  if (c.given("m")) {
    SG_ASSIGN(columns, c.size("m"));
  }
  return give_new(c, c.dtype("dtype").value_or(DType::f32), {rows, columns});
}

Status scalar_tensor(InferCall& c) { return give_new(c, c.dtype("dtype").value_or(DType::f32), {}); }

Status new_factory(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shape, c.size_list("size"));
  Exprs stride = c.sizes.contiguous(shape);
  return c.give(c.make(c.dtype("dtype").value_or(self->dtype), std::move(shape), std::move(stride),
                       c.device("device").value_or(self->device)));
}

Status randperm(InferCall& c) {
  SG_ASSIGN(Expr n, c.size("n"));
  return give_new(c, c.dtype("dtype").value_or(DType::i64), {n});
}

Status multinomial(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Expr samples, c.size("num_samples"));
  if (self->shape.empty() || self->shape.size() > 2) return c.fail("needs 1 or 2 dimensions");
  Exprs shape(self->shape.begin(), self->shape.end() - 1);
  shape.push_back(samples);
  return c.give_contiguous(DType::i64, std::move(shape), *self);
}

}  // namespace sg::infer
