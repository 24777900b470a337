// Numbers on the host: sizes, size arithmetic, values read from the device; and calls of nested graphs.
#include <algorithm>
#include <cmath>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

Type scalar(TypeKind kind) {
  Type t;
  t.kind = kind;
  return t;
}

// An operand of size arithmetic: an expression, or else a float (`floating`) or an unknown integer.
struct Number {
  std::optional<Expr> value;
  bool floating = false;
};

// The recorded type, if it is a data symbol: a number that no expression gives, known only when the node runs.
const Type* recorded_symbol(InferCall& c) {
  const Type* type = c.node.result_count == 1 ? &c.graph.type(c.node.result(0)) : nullptr;
  if (type == nullptr || type->kind != TypeKind::integer || !type->has_value) return nullptr;
  auto name = c.pool.exprs.as_symbol(type->value);
  const Symbol* symbol = name ? c.program.find_symbol(*name) : nullptr;
  return symbol != nullptr && symbol->kind == SymbolKind::data ? type : nullptr;
}

Status give_whole(InferCall& c) {
  const Type* type = recorded_symbol(c);
  return c.give(type != nullptr ? *type : scalar(TypeKind::integer));
}

Result<Number> number(InferCall& c, const Arg& arg) {
  Number n;
  const Type* type = c.type_of(arg);
  n.floating = arg.is(ArgKind::floating) || (type != nullptr && type->kind == TypeKind::floating);
  if (n.floating) return n;
  if (type != nullptr && type->kind != TypeKind::integer && type->kind != TypeKind::boolean)
    return c.fail("an argument is not a number");
  if (type != nullptr && !type->has_value) return n;
  SG_ASSIGN(n.value, c.as_size(arg));
  return n;
}

Result<Number> number(InferCall& c, std::string_view name) {
  const Arg* arg = c.find(name);
  if (arg == nullptr) return c.fail("argument '" + std::string(name) + "' is missing");
  return number(c, *arg);
}

Status whole_number(InferCall& c, std::string_view name) {
  SG_ASSIGN(Number n, number(c, name));
  return n.floating ? Status(c.fail("'" + std::string(name) + "' is not a whole number")) : ok_status();
}

bool is_boolean(InferCall& c, std::string_view name) {
  const Arg* arg = c.find(name);
  const Type* type = arg == nullptr ? nullptr : c.type_of(*arg);
  return type != nullptr ? type->kind == TypeKind::boolean : arg != nullptr && arg->is(ArgKind::boolean);
}

// The node that makes the number, if it is this op with `arity` arguments.
const Node* made_by(InferCall& c, const Arg& arg, std::string_view op, size_t arity) {
  NodeId def = arg.is(ArgKind::value) ? c.graph.value(arg.as_value()).def : NodeId();
  bool is_it = def && c.graph.op_name(def) == op && c.graph.node(def).args.size() == arity;
  return is_it ? &c.graph.node(def) : nullptr;
}

struct Ratio {
  Expr above, below;
};

// 0.75 becomes 3 / 4; only factors whose product with a size is exact in floats.
std::optional<Ratio> as_ratio(InferCall& c, double factor) {
  constexpr double kLargest = 1 << 16;
  double below = 1;
  while (factor != std::floor(factor) && below < kLargest) factor *= 2, below *= 2;
  if (factor != std::floor(factor) || !(std::fabs(factor) <= kLargest)) return std::nullopt;
  return Ratio{c.sizes.number(static_cast<int64_t>(factor)), c.sizes.number(static_cast<int64_t>(below))};
}

// a / b for sizes, or a * 0.5.
std::optional<Ratio> ratio_of(InferCall& c, const Arg& arg) {
  if (const Node* quotient = made_by(c, arg, "python.truediv", 2)) {
    auto a = number(c, quotient->args[0]), b = number(c, quotient->args[1]);
    if (a.ok() && b.ok() && a->value && b->value) return Ratio{*a->value, *b->value};
  }
  const Node* product = made_by(c, arg, "python.mul", 2);
  if (product == nullptr) return std::nullopt;
  bool is_first = product->args[0].is(ArgKind::floating);
  const Arg &factor = product->args[is_first ? 0 : 1], *size = &product->args[is_first ? 1 : 0];
  if (const Node* as_float = made_by(c, *size, "python.sym_float", 1)) size = &as_float->args[0];
  auto whole = number(c, *size);
  auto ratio = factor.is(ArgKind::floating) ? as_ratio(c, factor.as_float()) : std::nullopt;
  if (!ratio || !whole.ok() || !whole->value) return std::nullopt;
  return Ratio{c.sizes.exprs().mul(*whole->value, ratio->above), ratio->below};
}

// math.ceil(a / b) and the like, without floats. Truncation equals floor if neither operand is negative.
std::optional<Expr> rounded_ratio(InferCall& c) {
  const Arg* arg = c.find("a");
  auto ratio = arg != nullptr ? ratio_of(c, *arg) : std::nullopt;
  if (!ratio) return std::nullopt;
  ExprPool& exprs = c.sizes.exprs();
  if (c.op.name == "python.ceil") return exprs.neg(exprs.floordiv(exprs.neg(ratio->above), ratio->below));
  bool is_positive = c.sizes.lower(ratio->above).value_or(-1) >= 0 && c.sizes.lower(ratio->below).value_or(-1) > 0;
  bool truncates = c.op.name == "python.trunc" || c.op.name == "python.sym_int";
  if (c.op.name != "python.floor" && !(truncates && is_positive)) return std::nullopt;
  return exprs.floordiv(ratio->above, ratio->below);
}

using Operation = Expr (ExprPool::*)(Expr, Expr);

Status arithmetic(InferCall& c, Operation operation) {
  SG_ASSIGN(Number a, number(c, "a"));
  SG_ASSIGN(Number b, number(c, "b"));
  if (a.floating || b.floating) return c.give(scalar(TypeKind::floating));
  if (!a.value || !b.value) return give_whole(c);
  return c.give_integer((c.sizes.exprs().*operation)(*a.value, *b.value));
}

}  // namespace

Status size_add(InferCall& c) { return arithmetic(c, &ExprPool::add); }
Status size_sub(InferCall& c) { return arithmetic(c, &ExprPool::sub); }
Status size_mul(InferCall& c) { return arithmetic(c, &ExprPool::mul); }
Status size_floordiv(InferCall& c) { return arithmetic(c, &ExprPool::floordiv); }
Status size_mod(InferCall& c) { return arithmetic(c, &ExprPool::mod); }
Status size_max(InferCall& c) { return arithmetic(c, &ExprPool::max); }
Status size_min(InferCall& c) { return arithmetic(c, &ExprPool::min); }

Status size_pow(InferCall& c) {
  SG_ASSIGN(Number a, number(c, "a"));
  SG_ASSIGN(Number b, number(c, "b"));
  if (a.floating || b.floating) return c.give(scalar(TypeKind::floating));
  auto power = b.value ? c.sizes.constant(*b.value) : std::nullopt;
  if (power && *power < 0) return c.give(scalar(TypeKind::floating));
  if (!a.value || !power) return give_whole(c);
  if (*power > 64) return c.fail("the power is out of range");
  return c.give_integer(c.sizes.exprs().pow(*a.value, static_cast<uint32_t>(*power)));
}

Status size_truediv(InferCall& c) {
  SG_TRY(number(c, "a"));
  SG_TRY(number(c, "b"));
  return c.give(scalar(TypeKind::floating));
}

Status size_float(InferCall& c) {
  SG_TRY(number(c, "a"));
  return c.give(scalar(TypeKind::floating));
}

Status size_neg(InferCall& c) {
  SG_ASSIGN(Number a, number(c, "a"));
  if (!a.value) return c.give(scalar(a.floating ? TypeKind::floating : TypeKind::integer));
  return c.give_integer(c.sizes.exprs().neg(*a.value));
}

Status size_sum(InferCall& c) {
  const Arg* list = c.find("args");
  if (list == nullptr || !list->is(ArgKind::list)) return c.fail("needs a list of numbers");
  Expr sum = c.sizes.number(0);
  for (const Arg& item : list->items()) {
    SG_ASSIGN(Expr value, c.as_size(item));
    sum = c.sizes.exprs().add(sum, value);
  }
  return c.give_integer(sum);
}

Status size_compare(InferCall& c) {
  SG_TRY(number(c, "a"));
  SG_TRY(number(c, "b"));
  return c.give(scalar(TypeKind::boolean));
}

Status size_not(InferCall& c) {
  SG_TRY(number(c, "a"));
  return c.give(scalar(TypeKind::boolean));
}

// One of two numbers, chosen by a bool known only at run time.
Status size_choice(InferCall& c) {
  SG_TRY(number(c, "b"));
  SG_ASSIGN(Number t, number(c, "t"));
  SG_ASSIGN(Number f, number(c, "f"));
  if (t.floating || f.floating) return c.give(scalar(TypeKind::floating));
  if (t.value && f.value && *t.value == *f.value) return c.give_integer(*t.value);
  return is_boolean(c, "t") && is_boolean(c, "f") ? c.give(scalar(TypeKind::boolean)) : give_whole(c);
}

Status size_bits(InferCall& c) {
  SG_TRY(whole_number(c, "a"));
  SG_TRY(whole_number(c, "b"));
  return is_boolean(c, "a") && is_boolean(c, "b") ? c.give(scalar(TypeKind::boolean)) : give_whole(c);
}

Status size_shift(InferCall& c) {
  SG_TRY(whole_number(c, "a"));
  SG_TRY(whole_number(c, "b"));
  return give_whole(c);
}

Status size_pos(InferCall& c) {
  SG_ASSIGN(Number a, number(c, "a"));
  if (!a.value) return c.give(scalar(a.floating ? TypeKind::floating : TypeKind::integer));
  return c.give_integer(*a.value);
}

Status size_abs(InferCall& c) {
  SG_ASSIGN(Number a, number(c, "a"));
  if (!a.value) return c.give(scalar(a.floating ? TypeKind::floating : TypeKind::integer));
  return c.give_integer(c.sizes.exprs().max(*a.value, c.sizes.exprs().neg(*a.value)));
}

// floor, ceil and the like: integers stay as they are.
Status size_whole(InferCall& c) {
  SG_ASSIGN(Number a, number(c, "a"));
  if (a.value) return c.give_integer(*a.value);
  if (const Type* type = recorded_symbol(c)) return c.give(*type);
  if (auto rounded = rounded_ratio(c)) return c.give_integer(*rounded);
  return give_whole(c);
}

// Rounds to an integer; with ndigits a float stays a float.
Status size_round(InferCall& c) {
  if (!c.given("ndigits")) return size_whole(c);
  SG_ASSIGN(Number a, number(c, "a"));
  return a.floating ? c.give(scalar(TypeKind::floating)) : give_whole(c);
}

Status sym_size(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  if (self->shape.empty()) return c.fail("a tensor without dimensions has no size");
  return c.give_integer(self->shape[dim]);
}

Status sym_stride(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  if (self->shape.empty()) return c.fail("a tensor without dimensions has no stride");
  return c.give_integer(self->stride[dim]);
}

Status sym_numel(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return c.give_integer(c.sizes.count(self->shape));
}

Status sym_storage_offset(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return c.give_integer(self->offset);
}

// The recorded symbol defines the number, so a recorded type of the right kind is taken as it is.
Status local_scalar(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  TypeKind kind = self->dtype == DType::boolean ? TypeKind::boolean
                  : is_floating(self->dtype)    ? TypeKind::floating
                                                : TypeKind::integer;
  if (is_complex(self->dtype)) return c.fail("a complex number has no scalar type");
  auto count = c.sizes.constant(c.sizes.count(self->shape));
  if (count && *count != 1) return c.fail("needs a tensor of one element");
  if (c.node.result_count == 1) {
    const Type& recorded = c.graph.type(c.node.result(0));
    if (recorded.kind == kind) return c.give(recorded);
  }
  return c.give(scalar(kind));
}

Status no_result(InferCall&) { return ok_status(); }

Status getitem(InferCall& c) {
  const Arg* container = c.find("container");
  SG_ASSIGN(int64_t index, c.integer("index"));
  const Type* list = container == nullptr ? nullptr : c.type_of(*container);
  if (list == nullptr || list->kind != TypeKind::list) return c.fail("'container' is not a list");
  int64_t size = static_cast<int64_t>(list->elements.size());
  if (index < -size || index >= size) return c.fail("index " + std::to_string(index) + " is out of range");
  return c.give(c.pool.types[list->elements[static_cast<size_t>(index < 0 ? index + size : index)]]);
}

// The types of the body's outputs. The body is closed: its types use the same symbols as the caller's.
Status call(InferCall& c) {
  const Arg* body = c.find("body");
  if (body == nullptr || !body->is(ArgKind::graph) || body->as_graph().index >= c.program.nested.size())
    return c.fail("'body' is not a graph of this program");
  const Graph& graph = c.program.nested[body->as_graph().index]->graph;
  for (const Output& output : graph.outputs()) {
    if (output.value.is_none()) SG_TRY(c.give_none());
    else SG_TRY(c.give(graph.type(output.value)));
  }
  return ok_status();
}

}  // namespace sg::infer
