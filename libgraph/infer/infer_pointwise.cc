// Elementwise ops: type promotion, broadcasting, and the strides that PyTorch's iterator gives results.
#include <algorithm>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

// Operands of an elementwise op. Types promote in three classes: tensors with dimensions first, zero-dimensional
// tensors next, plain numbers last; a lower class matters only if its category (bool, int, float, complex) is higher.
struct Operands {
  std::vector<const Type*> tensors;
  DType dimensional = DType::none, scalar = DType::none, number = DType::none;
  bool other_is_number = false;

  void add_tensor(const Type* t, bool promotes) {
    tensors.push_back(t);
    if (!promotes) return;
    DType& into = t->shape.empty() ? scalar : dimensional;
    into = promote(into, t->dtype);
  }
  void add_number(DType t) { number = promote(number, t); }
  DType result() const;
  StrId device() const;
};

DType to_complex(DType t) { return t == DType::f64 ? DType::c128 : t == DType::f16 ? DType::c32 : DType::c64; }

DType combine(DType higher, DType lower) {
  if (higher == DType::none || lower == DType::none) return promote(higher, lower);
  if (is_complex(higher)) return higher;
  if (is_floating(higher)) return is_complex(lower) ? to_complex(higher) : higher;
  if (higher == DType::boolean || is_floating(lower) || is_complex(lower)) return promote(higher, lower);
  return higher;
}

DType Operands::result() const { return combine(dimensional, combine(scalar, number)); }

StrId Operands::device() const {
  for (const Type* t : tensors)
    if (!t->shape.empty()) return t->device;
  return tensors[0]->device;
}

// The element type of a plain number in promotion; none if the argument is no number.
DType number_type(const InferCall& c, const Arg& arg) {
  switch (arg.kind()) {
    case ArgKind::boolean: return DType::boolean;
    case ArgKind::integer:
    case ArgKind::expr: return DType::i64;
    case ArgKind::floating: return DType::f32;
    case ArgKind::complex: return DType::c64;
    default: break;
  }
  const Type* type = c.type_of(arg);
  if (type == nullptr) return DType::none;
  if (type->kind == TypeKind::integer) return DType::i64;
  if (type->kind == TypeKind::floating) return DType::f32;
  return type->kind == TypeKind::boolean ? DType::boolean : DType::none;
}

// False for scalars that scale a term or set a constant, which do not affect the element type.
bool promotes(const Param& p) {
  return p.name != "alpha" && p.name != "value" && p.name != "weight" && p.name != "condition" && p.name != "mask";
}

Status add_operand(const InferCall& c, const Param& p, bool with_numbers, Operands* operands) {
  const Arg* arg = c.find(p.name);
  if (arg == nullptr) {
    if (p.optional || p.has_default || p.kind == ParamKind::scalar) return ok_status();
    return c.fail("argument '" + std::string(p.name) + "' is missing");
  }
  bool counts = promotes(p) || p.kind == ParamKind::tensor;
  const Type* type = c.type_of(*arg);
  if (type != nullptr && type->kind == TypeKind::tensor) {
    if (type->shape.size() != type->stride.size()) return c.fail("a tensor without strides");
    operands->add_tensor(type, promotes(p) || p.name == "weight" || p.name == "value");
    return ok_status();
  }
  DType number = number_type(c, *arg);
  if (number == DType::none) return c.fail("argument '" + std::string(p.name) + "' is not a tensor or number");
  if (counts && with_numbers) operands->add_number(number);
  operands->other_is_number |= p.kind == ParamKind::scalar && p.name == "other";
  return ok_status();
}

Result<Operands> operands_of(const InferCall& c, bool with_numbers = true) {
  Operands operands;
  for (const Param& p : c.op.params)
    if (p.kind == ParamKind::tensor || p.kind == ParamKind::scalar) SG_TRY(add_operand(c, p, with_numbers, &operands));
  if (operands.tensors.empty()) return c.fail("has no tensor argument");
  return operands;
}

Result<Exprs> common_shape(const InferCall& c, const std::vector<const Type*>& tensors) {
  Exprs shape = tensors[0]->shape;
  for (size_t i = 1; i < tensors.size(); ++i) {
    auto both = c.sizes.broadcast(shape, tensors[i]->shape);
    if (!both) return c.fail("the shapes of its arguments do not broadcast");
    shape = std::move(*both);
  }
  return shape;
}

Status give_elementwise(InferCall& c, const Operands& operands, DType dtype) {
  SG_ASSIGN(Exprs shape, common_shape(c, operands.tensors));
  // PyTorch treats a number in place of a second tensor as a zero-dimensional one, which affects strides of axes of
  // size 0 or 1.
  std::vector<const Type*> laid_out = operands.tensors;
  const Type number;
  if (operands.other_is_number &&
      (!c.sizes.is_contiguous(*laid_out[0]) || c.sizes.is_dense_channels_last(*laid_out[0])))
    laid_out.push_back(&number);
  Exprs stride = c.sizes.elementwise(shape, laid_out);
  return c.give(c.make(dtype, std::move(shape), std::move(stride), operands.device()));
}

DType floated(DType t) { return is_floating(t) || is_complex(t) ? t : DType::f32; }

Exprs strides_for(InferCall& c, const Type& t, MemoryFormat format) {
  if (format == MemoryFormat::preserve) return c.sizes.preserved(t);
  size_t rank = format == MemoryFormat::channels_last ? 4 : 5;
  if (format == MemoryFormat::contiguous || t.shape.size() != rank) return c.sizes.contiguous(t.shape);
  Exprs moved(t.shape.begin(), t.shape.end());  // batch, spatial dimensions, channels
  std::rotate(moved.begin() + 1, moved.begin() + 2, moved.end());
  Exprs stride = c.sizes.contiguous(moved);
  std::rotate(stride.begin() + 1, stride.end() - 1, stride.end());
  return stride;
}

Status converted(InferCall& c, bool may_alias) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  DType dtype = c.dtype("dtype").value_or(self->dtype);
  StrId device = c.device("device").value_or(self->device);
  MemoryFormat format = c.memory_format("memory_format", MemoryFormat::preserve);
  bool copy = !may_alias;
  if (may_alias && c.given("copy")) {
    SG_ASSIGN(copy, c.boolean("copy"));
  }
  Exprs stride = strides_for(c, *self, format);
  if (!copy && dtype == self->dtype && device == self->device &&
      (format == MemoryFormat::preserve || c.sizes.same(stride, self->stride)))
    return c.give(*self);
  return c.give(c.make(dtype, self->shape, std::move(stride), device));
}

}  // namespace

Status pointwise(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  return give_elementwise(c, operands, operands.result());
}

Status pointwise_tensors(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c, false));
  return give_elementwise(c, operands, operands.result());
}

// The number comes first, as a zero-dimensional tensor, and affects strides as that of `other` does.
Status pointwise_of_number(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  operands.other_is_number = true;
  return give_elementwise(c, operands, operands.result());
}

// The result is `out`, which must have the right shape; PyTorch would resize it.
Status pointwise_out(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  SG_ASSIGN(const Type* out, c.tensor("out"));
  operands.tensors.pop_back();
  if (operands.tensors.empty()) return c.fail("has no tensor argument beside 'out'");
  SG_ASSIGN(Exprs shape, common_shape(c, operands.tensors));
  SG_TRY(c.expect_shape("out", shape));
  return c.give(*out);
}

Status pointwise_float(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  return give_elementwise(c, operands, floated(operands.result()));
}

// Traced as where(self > 0, ...) or similar: the last operand determines the memory order.
Status pointwise_last_first(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c, false));
  std::reverse(operands.tensors.begin(), operands.tensors.end());
  return give_elementwise(c, operands, operands.result());
}

// PyTorch tests the sign first, so `other` determines the memory order.
Status copysign(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  std::reverse(operands.tensors.begin(), operands.tensors.end());
  return give_elementwise(c, operands, floated(operands.result()));
}

Status pointwise_real(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  return give_elementwise(c, operands, real_part(operands.result()));
}

Status pointwise_real_float(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  return give_elementwise(c, operands, floated(real_part(operands.result())));
}

Status compare(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  return give_elementwise(c, operands, DType::boolean);
}

Status div_mode(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  DType dtype = c.given("rounding_mode") ? operands.result() : floated(operands.result());
  operands.other_is_number = false;  // PyTorch traces this as an op on one tensor
  return give_elementwise(c, operands, dtype);
}

Status where(InferCall& c) { return pointwise(c); }

Status complex(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  return give_elementwise(c, operands, to_complex(operands.result()));
}

Status dropout_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(const Type* mask, c.tensor("mask"));
  Operands operands;
  operands.add_tensor(grad, true);
  operands.add_tensor(mask, false);
  SG_TRY(give_elementwise(c, operands, floated(grad->dtype)));
  c.results[0].stride = in_format_of(c, *grad, c.results[0].shape);
  return ok_status();
}

Status square(InferCall& c) {
  SG_ASSIGN(Operands operands, operands_of(c));
  operands.add_number(DType::i64);  // the exponent 2
  return give_elementwise(c, operands, operands.result());
}

Status masked_fill(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* mask, c.tensor("mask"));
  SG_ASSIGN(Exprs shape, common_shape(c, {self, mask}));
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

// The common shape of all operands, in rows.
Status in_rows(InferCall& c) {
  std::vector<const Type*> operands;
  for (const Param& p : c.op.params) {
    if (p.kind != ParamKind::tensor) continue;
    SG_ASSIGN(const Type* operand, c.tensor(p.name));
    operands.push_back(operand);
  }
  SG_ASSIGN(Exprs shape, common_shape(c, operands));
  return c.give_contiguous(operands[0]->dtype, std::move(shape), *operands[0]);
}

Status like_first(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor(c.op.params[0].name));
  return c.give(self->dtype, self->shape, c.sizes.elementwise(self->shape, {self}), *self);
}

Status like_first_preserve(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor(c.op.params[0].name));
  return c.give(self->dtype, self->shape, c.sizes.preserved(*self), *self);
}

Status copy(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return give_copy(c, *self);
}

// The argument itself, written or not.
Status same(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor(c.op.params[0].name));
  return c.give(*self);
}

Status same_written(InferCall& c) { return same(c); }

Status conj(InferCall& c) { return same(c); }

// The random slopes go to `noise`, one per element of the input.
Status rrelu(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.expect_shape("noise", self->shape));
  return c.op.params[0].written ? c.give(*self) : like_first(c);
}

Status rrelu_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.expect_shape("grad_output", self->shape));
  SG_TRY(c.expect_shape("noise", self->shape));
  return like_first(c);
}

// What the op would give without writing: that of its row without the underscore; none if there is no such row, or it
// gives the type of `self` anyway.
static Result<DType> written_dtype(const InferCall& c) {
  const size_t underscore = c.op.name.rfind("_.");
  if (underscore == std::string_view::npos) return DType::none;
  std::string name(c.op.name);
  const OpInfo* like = find_op(name.erase(underscore, 1));
  if (like == nullptr) like = find_op(name.substr(0, underscore) + ".default");
  if (like == nullptr) return DType::none;
  constexpr InferRule promoting = pointwise, squaring = square, floating = pointwise_float, signing = copysign,
                      dividing = div_mode;
  const InferRule rule = like->infer;
  const bool floats = rule == floating || rule == signing || (rule == dividing && !c.given("rounding_mode"));
  if (!floats && rule != promoting && rule != squaring && rule != dividing) return DType::none;
  SG_ASSIGN(Operands operands, operands_of(c));
  if (rule == squaring) operands.add_number(DType::i64);
  return floats ? floated(operands.result()) : operands.result();
}

Status in_place(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (!c.op.has(kPointwise)) return c.give(*self);
  for (const Param& p : c.op.params) {
    const Arg* arg = c.find(p.name);
    const Type* other = arg == nullptr ? nullptr : c.type_of(*arg);
    if (p.kind != ParamKind::tensor || p.written || other == nullptr || other->kind != TypeKind::tensor) continue;
    auto both = c.sizes.broadcast(self->shape, other->shape);
    bool fits = both && both->size() == self->shape.size();
    for (size_t i = 0; fits && i < both->size(); ++i)
      fits = !(c.sizes.is(self->shape[i], 1) && !c.sizes.is((*both)[i], 1) && c.sizes.constant((*both)[i]));
    if (!fits) return c.fail("'" + std::string(p.name) + "' does not broadcast to the tensor that is written");
  }
  SG_ASSIGN(const DType given, written_dtype(c));
  if (!can_cast(given, self->dtype))
    return c.fail("it gives " + std::string(dtype_name(given)) + ", which is not written to " +
                  std::string(dtype_name(self->dtype)));
  return c.give(*self);
}

Status to_copy(InferCall& c) { return converted(c, false); }
Status to(InferCall& c) { return converted(c, true); }

Status clone(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  Exprs stride = strides_for(c, *self, c.memory_format("memory_format", MemoryFormat::preserve));
  return c.give(self->dtype, self->shape, std::move(stride), *self);
}

Status contiguous(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (c.sizes.is_contiguous(*self)) return c.give(*self);
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status like(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  Exprs stride = strides_for(c, *self, c.memory_format("memory_format", MemoryFormat::preserve));
  return c.give(c.make(c.dtype("dtype").value_or(self->dtype), self->shape, std::move(stride),
                       c.device("device").value_or(self->device)));
}

Status move_device(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor(c.op.params[0].name));
  StrId device = c.device("device").value_or(c.pool.strings.intern("cpu"));
  if (!c.given("size") || !c.given("stride"))
    return c.give(c.make(self->dtype, self->shape, c.sizes.preserved(*self), device));
  SG_ASSIGN(Exprs shape, c.size_list("size"));
  SG_ASSIGN(Exprs stride, c.size_list("stride"));
  if (shape.size() != self->shape.size() || stride.size() != shape.size())
    return c.fail("'size' and 'stride' are not those of the tensor");
  for (size_t i = 0; i < shape.size(); ++i)
    if (!c.may_equal(shape[i], self->shape[i])) return c.fail("'size' is not that of the tensor");
  return c.give(c.make(self->dtype, std::move(shape), std::move(stride), device));
}

Status native_dropout(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  Exprs stride = c.sizes.elementwise(input->shape, {input});
  SG_TRY(c.give(input->dtype, input->shape, stride, *input));
  return c.give(DType::boolean, input->shape, stride, *input);
}

Status dropout(InferCall& c) { return like_first(c); }

Status isin(InferCall& c) {
  SG_ASSIGN(const Type* elements, c.tensor("elements"));
  SG_TRY(c.tensor("test_elements"));
  return c.give(DType::boolean, elements->shape, c.sizes.preserved(*elements), *elements);
}

Status bucketize(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* boundaries, c.tensor("boundaries"));
  if (boundaries->shape.size() != 1) return c.fail("'boundaries' has to be a vector");
  SG_ASSIGN(bool narrow, c.boolean("out_int32"));
  return c.give_contiguous(narrow ? DType::i32 : DType::i64, self->shape, *self);
}

// One sorted sequence for all values, or one per row of values; `sorter` gives its order.
Status searchsorted(InferCall& c) {
  SG_ASSIGN(const Type* sequence, c.tensor("sorted_sequence"));
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.expect_shape("sorter", sequence->shape));
  if (sequence->shape.empty()) return c.fail("'sorted_sequence' needs a dimension");
  bool fits = sequence->shape.size() == 1 || sequence->shape.size() == self->shape.size();
  for (size_t i = 0; fits && sequence->shape.size() > 1 && i + 1 < self->shape.size(); ++i)
    fits = c.may_equal(sequence->shape[i], self->shape[i]);
  if (!fits) return c.fail("'sorted_sequence' needs one row, or a row for each of the values'");
  SG_ASSIGN(bool narrow, c.boolean("out_int32"));
  return c.give_contiguous(narrow ? DType::i32 : DType::i64, self->shape, *self);
}

}  // namespace sg::infer
