#include "libgraph/infer/infer_call.h"

#include <algorithm>
#include <charconv>

#include "libgraph/base/joined.h"
#include "libgraph/infer/infer.h"

namespace sg {
namespace {

// Schema defaults that rules need as numbers: "0", "-1", "[]", "True", "i64".
std::optional<int64_t> number_of(std::string_view text) {
  if (text == "True" || text == "False") return text == "True";
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// An element type's category in promotion: complex, then floating, then integral, then bool.
int category(DType t) { return is_complex(t) ? 3 : is_floating(t) ? 2 : t == DType::boolean ? 0 : 1; }

std::string print_shape(const Pool& pool, const Exprs& shape) {
  return "[" + joined(shape, ", ", [&](Expr e) { return pool.exprs.print(e); }) + "]";
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b || b == DType::none) return a;
  if (a == DType::none) return b;
  if (category(a) < category(b)) std::swap(a, b);
  if (category(a) == 3) {
    int part = category(b) == 3 ? dtype_bytes(b) / 2 : category(b) == 2 ? dtype_bytes(b) : 0;
    if (b == DType::bf16) part = 4;
    int bytes = std::max(dtype_bytes(a) / 2, part);
    return bytes >= 8 ? DType::c128 : bytes >= 4 ? DType::c64 : DType::c32;
  }
  if (category(a) != category(b)) return a;
  if (dtype_bytes(a) < dtype_bytes(b)) std::swap(a, b);
  if (category(a) == 2) return dtype_bytes(a) == dtype_bytes(b) && dtype_bytes(a) == 2 ? DType::f32 : a;
  bool a_signed = a >= DType::i64 && a <= DType::i8, b_signed = b >= DType::i64 && b <= DType::i8;
  if (a_signed == b_signed || (a_signed && dtype_bytes(a) > dtype_bytes(b))) return a;
  // The unsigned type is at least as wide: the next wider signed type.
  return dtype_bytes(a) == 1 ? DType::i16 : dtype_bytes(a) == 2 ? DType::i32 : DType::i64;
}

bool can_cast(DType from, DType to) {
  return from == DType::none || to == DType::none || category(from) <= category(to);
}

Error InferCall::fail(std::string message) const {
  return Error{ErrorKind::unreadable, std::string(op.name) + ": " + std::move(message), {}, {}};
}

Status InferCall::bind() {
  bound_.assign(op.params.size(), nullptr);
  size_t position = 0;
  for (const Arg& arg : node.args) {
    size_t index = position;
    if (arg.key().is_none()) {
      ++position;
    } else {
      int found = op.param_index(pool.strings[arg.key()]);
      if (found < 0) return fail("no parameter is called '" + pool.strings.str(arg.key()) + "'");
      index = static_cast<size_t>(found);
    }
    if (index >= bound_.size()) return fail("takes at most " + std::to_string(bound_.size()) + " arguments");
    if (bound_[index] != nullptr) return fail("'" + std::string(op.params[index].name) + "' is given twice");
    bound_[index] = &arg;
  }
  return ok_status();
}

const Arg* InferCall::find(std::string_view name) const {
  int index = op.param_index(name);
  if (index < 0) return nullptr;
  const Arg* arg = bound_[static_cast<size_t>(index)];
  return arg == nullptr || arg->is(ArgKind::none) ? nullptr : arg;
}

const Type* InferCall::type_of(const Arg& arg) const {
  return arg.is(ArgKind::value) && arg.as_value().index < graph.value_id_limit() ? &graph.type(arg.as_value())
                                                                                 : nullptr;
}

Result<const Type*> InferCall::tensor(std::string_view name) const {
  const Arg* arg = find(name);
  if (arg == nullptr) return fail("argument '" + std::string(name) + "' is missing");
  const Type* type = type_of(*arg);
  if (type == nullptr || type->kind != TypeKind::tensor || type->shape.size() != type->stride.size())
    return fail("argument '" + std::string(name) + "' is not a tensor of known type");
  return type;
}

Result<const Type*> InferCall::optional_tensor(std::string_view name) const {
  if (!given(name)) return static_cast<const Type*>(nullptr);
  return tensor(name);
}

Result<std::vector<const Type*>> InferCall::tensors(std::string_view name) const {
  std::vector<const Type*> list;
  const Arg* arg = find(name);
  if (arg == nullptr) return list;
  auto add = [&](const Type* type) {
    bool good = type != nullptr && type->kind == TypeKind::tensor && type->shape.size() == type->stride.size();
    if (good) list.push_back(type);
    return good;
  };
  if (arg->is(ArgKind::list)) {
    for (const Arg& item : arg->items()) {
      if (item.is(ArgKind::none)) list.push_back(nullptr);
      else if (!add(type_of(item))) return fail("'" + std::string(name) + "' holds something that is not a tensor");
    }
    return list;
  }
  const Type* type = type_of(*arg);
  if (type == nullptr || type->kind != TypeKind::list)
    return fail("'" + std::string(name) + "' is not a list of tensors");
  for (TypeId element : type->elements)
    if (!add(&pool.types[element])) return fail("'" + std::string(name) + "' holds something that is not a tensor");
  return list;
}

Result<Expr> InferCall::as_size(const Arg& arg) const {
  if (arg.is(ArgKind::integer)) return sizes.number(arg.as_int());
  if (arg.is(ArgKind::boolean)) return sizes.number(arg.as_bool());
  if (arg.is(ArgKind::expr) && !sizes.exprs().is_invalid(arg.as_expr())) return arg.as_expr();
  const Type* type = type_of(arg);
  bool scalar = type != nullptr && (type->kind == TypeKind::integer || type->kind == TypeKind::boolean);
  if (scalar && type->has_value && !sizes.exprs().is_invalid(type->value)) return type->value;
  return fail("a size is neither a known nor a symbolic number");
}

Result<Expr> InferCall::size(std::string_view name) const {
  if (const Arg* arg = find(name)) return as_size(*arg);
  int index = op.param_index(name);
  if (index >= 0)
    if (auto value = number_of(op.params[static_cast<size_t>(index)].default_text)) return sizes.number(*value);
  return fail("argument '" + std::string(name) + "' is missing");
}

Result<Exprs> InferCall::size_list(std::string_view name) const {
  Exprs list;
  const Arg* arg = find(name);
  if (arg != nullptr && arg->is(ArgKind::list)) {
    for (const Arg& item : arg->items()) {
      SG_ASSIGN(Expr e, as_size(item));
      list.push_back(e);
    }
    return list;
  }
  int index = op.param_index(name);
  if (arg == nullptr && index >= 0) {
    const Param& p = op.params[static_cast<size_t>(index)];
    if (p.default_text == "[]" || p.default_text == "None" || (p.optional && !p.has_default)) return list;
  }
  SG_ASSIGN(Expr e, size(name));
  list.push_back(e);
  return list;
}

Result<int64_t> InferCall::integer(std::string_view name) const {
  SG_ASSIGN(Expr e, size(name));
  if (auto value = sizes.constant(e)) return *value;
  return fail("'" + std::string(name) + "' has to be a known number");
}

Result<std::vector<int64_t>> InferCall::integers(std::string_view name) const {
  SG_ASSIGN(Exprs list, size_list(name));
  std::vector<int64_t> numbers;
  for (Expr e : list) {
    auto value = sizes.constant(e);
    if (!value) return fail("'" + std::string(name) + "' has to hold known numbers");
    numbers.push_back(*value);
  }
  return numbers;
}

Result<bool> InferCall::boolean(std::string_view name) const {
  SG_ASSIGN(int64_t value, integer(name));
  return value != 0;
}

std::optional<DType> InferCall::dtype(std::string_view name) const {
  if (const Arg* arg = find(name)) {
    if (arg->is(ArgKind::dtype)) return arg->as_dtype();
    return std::nullopt;
  }
  int index = op.param_index(name);
  return index < 0 ? std::nullopt : parse_dtype(op.params[static_cast<size_t>(index)].default_text);
}

std::optional<StrId> InferCall::device(std::string_view name) const {
  if (const Arg* arg = find(name)) return arg->is_text() ? std::optional<StrId>(arg->as_text()) : std::nullopt;
  return std::nullopt;
}

std::string_view InferCall::text(std::string_view name) const {
  const Arg* arg = find(name);
  return arg != nullptr && arg->is_text() ? pool.strings[arg->as_text()] : std::string_view();
}

MemoryFormat InferCall::memory_format(std::string_view name, MemoryFormat otherwise) const {
  std::string_view format = text(name);
  if (format == "contiguous_format") return MemoryFormat::contiguous;
  if (format == "preserve_format") return MemoryFormat::preserve;
  if (format == "channels_last") return MemoryFormat::channels_last;
  if (format == "channels_last_3d") return MemoryFormat::channels_last_3d;
  return otherwise;
}

Status InferCall::expect_shape(std::string_view name, const Exprs& shape) const {
  SG_ASSIGN(const Type* t, optional_tensor(name));
  if (t == nullptr) return ok_status();
  bool fits = t->shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = may_equal(t->shape[i], shape[i]);
  if (fits) return ok_status();
  return fail("'" + std::string(name) + "' has to be of shape " + print_shape(pool, shape));
}

Status InferCall::expect_broadcast(std::string_view name, const Exprs& shape) const {
  SG_ASSIGN(const Type* t, optional_tensor(name));
  if (t == nullptr) return ok_status();
  bool fits = t->shape.size() <= shape.size();
  for (size_t i = 1; fits && i <= t->shape.size(); ++i) {
    Expr size = t->shape[t->shape.size() - i];
    fits = sizes.is(size, 1) || may_equal(size, shape[shape.size() - i]);
  }
  if (fits) return ok_status();
  return fail("'" + std::string(name) + "' does not broadcast to " + print_shape(pool, shape));
}

bool InferCall::may_equal(Expr a, Expr b) const {
  if (pool.exprs.is_invalid(a) || pool.exprs.is_invalid(b)) return false;  // overflowed: no number
  auto x = pool.exprs.constant_value(a), y = pool.exprs.constant_value(b);
  return !x || !y || *x == *y;
}

bool InferCall::is_outside(Expr e, int64_t low, int64_t high) const {
  auto value = pool.exprs.constant_value(e);
  return value && (*value < low || *value > high);
}

Result<size_t> InferCall::wrap_dim(int64_t dim, size_t rank) const {
  int64_t n = std::max<int64_t>(static_cast<int64_t>(rank), 1);
  if (dim < -n || dim >= n)
    return fail("dimension " + std::to_string(dim) + " of a tensor with " + std::to_string(rank));
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

Result<size_t> InferCall::dim(std::string_view name, size_t rank) const {
  SG_ASSIGN(int64_t value, integer(name));
  return wrap_dim(value, rank);
}

Type InferCall::make(DType dtype, Exprs shape, Exprs stride, StrId device) const {
  Type t;
  t.kind = TypeKind::tensor;
  t.dtype = dtype;
  t.device = device;
  t.offset = sizes.number(0);
  t.shape = std::move(shape);
  t.stride = std::move(stride);
  return t;
}

Status InferCall::give(Type t) {
  auto invalid = [&](Expr e) { return sizes.exprs().is_invalid(e); };
  auto bad_size = [&](Expr e) { return invalid(e) || sizes.constant(e).value_or(0) < 0; };
  if (t.kind == TypeKind::tensor) {
    if (std::any_of(t.shape.begin(), t.shape.end(), bad_size))
      return fail("a size of the result is negative or too large");
    if (std::any_of(t.stride.begin(), t.stride.end(), invalid) || invalid(t.offset))
      return fail("a stride of the result is too large");
  }
  results.push_back(std::move(t));
  return ok_status();
}

Status InferCall::give(DType dtype, Exprs shape, Exprs stride, const Type& like) {
  return give(make(dtype, std::move(shape), std::move(stride), like.device));
}

Status InferCall::give_contiguous(DType dtype, Exprs shape, const Type& like) {
  Exprs stride = sizes.contiguous(shape);
  return give(make(dtype, std::move(shape), std::move(stride), like.device));
}

Status InferCall::give_none() {
  Type t;
  t.kind = TypeKind::none;
  results.push_back(t);
  return ok_status();
}

Status InferCall::give_integer(Expr value) {
  if (sizes.exprs().is_invalid(value)) return fail("the number does not fit 64 bits");
  Type t;
  t.kind = TypeKind::integer;
  t.has_value = true;
  t.value = value;
  results.push_back(t);
  return ok_status();
}

}  // namespace sg
