// Types, sizes and expressions of exported programs.
#include "libgraph/import/pt2_read.h"
#include "libgraph/import/sympy_expr.h"

namespace sg {
namespace {

constexpr size_t kMaxExprText = 1 << 16;

}  // namespace

Result<std::string_view> need_string(const Json& object, std::string_view key) {
  std::string_view out;
  SG_TRY(need_field(object, key, [&](const Json& json) -> Status {
    SG_ASSIGN(out, json.string());
    return ok_status();
  }));
  return out;
}

Result<DType> pt2_dtype(const Json& json) {
  static constexpr std::pair<int64_t, DType> kTypes[] = {
      {1, DType::u8},      {2, DType::i8},          {3, DType::i16},         {4, DType::i32},  {5, DType::i64},
      {6, DType::f16},     {7, DType::f32},         {8, DType::f64},         {9, DType::c32},  {10, DType::c64},
      {11, DType::c128},   {12, DType::boolean},    {13, DType::bf16},       {28, DType::u16}, {29, DType::f8e4m3fn},
      {30, DType::f8e5m2}, {31, DType::f8e4m3fnuz}, {32, DType::f8e5m2fnuz}, {34, DType::u32}, {35, DType::u64}};
  SG_ASSIGN(int64_t number, json.integer());
  for (const auto& [code, dtype] : kTypes)
    if (code == number) return dtype;
  return json.error("the element type of number " + std::to_string(number) + " is none that this version knows");
}

std::string_view pt2_layout(int64_t number) {
  static constexpr std::string_view kNames[] = {"",           "sparse_coo", "sparse_csr", "sparse_csc",
                                                "sparse_bsr", "sparse_bsc", "_mkldnn",    "strided"};
  return number >= 0 && number < static_cast<int64_t>(std::size(kNames)) ? kNames[number] : std::string_view();
}

Result<std::string> pt2_device(const Json& json) {
  SG_ASSIGN(std::string_view type, need_string(json, "type"));
  std::string out(type);
  SG_TRY(with_field(json, "index", [&](const Json& index) -> Status {
    SG_ASSIGN(uint32_t number, index.natural(1 << 20));
    out += ":" + std::to_string(number);
    return ok_status();
  }));
  return out;
}

// Parses with symbols in place of sizes computed from floats; returns `refused` if there are none.
Result<Expr> Pt2Reader::parse_computed(std::string_view text, Result<Expr> refused) {
  if (text.size() > kMaxExprText) return refused;
  using Spelling = ComputedSizes::Spelling;
  bool is_plain = text.find("Symbol(") == std::string_view::npos;
  std::string named = computed_.named(&pool(), text, is_plain ? Spelling::plain : Spelling::constructors);
  return named == text ? refused : parse_sympy(&pool(), named);
}

Result<Expr> Pt2Reader::expr(const Json& json) {
  SG_ASSIGN(std::string_view text, need_string(json, "expr_str"));
  const Expr* known = exprs_.find(text);
  Expr e = known != nullptr ? *known : Expr();
  if (known == nullptr) {
    auto parsed = parse_sympy(&pool(), text);
    if (!parsed.ok()) parsed = parse_computed(text, std::move(parsed));
    if (!parsed.ok()) return json.error("`" + std::string(text.substr(0, 200)) + "`: " + parsed.error().message);
    e = *exprs_.try_emplace(text, *parsed).first;
  }
  auto symbol = pool().exprs.as_symbol(e);
  if (!symbol || hints_.contains(*symbol)) return e;
  SG_TRY(with_field(json, "hint", [&](const Json& hint) -> Status {
    int64_t value = 0;
    if (hint.is_object() && !hint.element["as_int"].get(value)) hints_.emplace(*symbol, value);
    return ok_status();
  }));
  return e;
}

Result<Expr> Pt2Reader::size(const Json& json) {
  Expr out;
  SG_TRY(with_union(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "as_int") {
      SG_ASSIGN(int64_t number, value.integer());
      out = context_->constant(number);
    } else if (key == "as_expr") {
      SG_ASSIGN(out, expr(value));
    } else {
      return value.error("a size is as_int or as_expr");
    }
    return ok_status();
  }));
  return out;
}

Result<std::vector<Expr>> Pt2Reader::sizes(const Json& json) {
  std::vector<Expr> out;
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(Expr e, size(item));
    out.push_back(e);
    return ok_status();
  }));
  return out;
}

Result<TypeId> Pt2Reader::tensor_type(const Json& meta) {
  Type type;
  type.kind = TypeKind::tensor;
  int64_t layout = 7;
  SG_TRY(with_field(meta, "layout", [&](const Json& json) -> Status {
    SG_ASSIGN(layout, json.integer());
    return ok_status();
  }));
  if (pt2_layout(layout) != "strided" && layout != 0)
    return opaque_type("tensor of layout " + std::string(pt2_layout(layout)));
  auto need_sizes = [&](std::string_view key, std::vector<Expr>* out) {
    return need_field(meta, key, [&](const Json& json) -> Status {
      SG_ASSIGN(*out, sizes(json));
      return ok_status();
    });
  };
  SG_TRY(need_field(meta, "dtype", [&](const Json& json) -> Status {
    SG_ASSIGN(type.dtype, pt2_dtype(json));
    return ok_status();
  }));
  SG_TRY(need_sizes("sizes", &type.shape));
  SG_TRY(need_sizes("strides", &type.stride));
  if (type.shape.size() != type.stride.size())
    return meta.error("the tensor has " + std::to_string(type.shape.size()) + " sizes and " +
                      std::to_string(type.stride.size()) + " strides");
  SG_TRY(need_field(meta, "device", [&](const Json& json) -> Status {
    SG_ASSIGN(std::string device, pt2_device(json));
    type.device = str(device);
    return ok_status();
  }));
  type.offset = context_->constant(0);
  SG_TRY(with_field(meta, "storage_offset", [&](const Json& json) -> Status {
    SG_ASSIGN(type.offset, size(json));
    return ok_status();
  }));
  return pool().types.intern(std::move(type));
}

TypeId Pt2Reader::none_type() {
  Type type;
  type.kind = TypeKind::none;
  return pool().types.intern(std::move(type));
}

TypeId Pt2Reader::opaque_type(std::string_view text) {
  Type type;
  type.kind = TypeKind::opaque;
  type.text = str(text);
  return pool().types.intern(std::move(type));
}

// A SymInt, SymFloat or SymBool. A symbolic value that is no integer has a type but no value.
Result<TypeId> Pt2Reader::scalar_type(const Json& json, TypeKind kind) {
  Type type;
  type.kind = kind;
  SG_TRY(with_union(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "as_expr") {
      if (kind != TypeKind::integer) return ok_status();
      type.has_value = true;
      SG_ASSIGN(type.value, expr(value));
    } else if (key == "as_int") {
      type.has_value = true;
      SG_ASSIGN(int64_t number, value.integer());
      type.value = context_->constant(number);
    } else if (key == "as_bool") {
      type.has_value = true;
      SG_ASSIGN(bool b, value.boolean());
      type.value = context_->constant(b ? 1 : 0);
    } else if (key == "as_float") {
      type.has_value = !value.element.get(type.float_value);  // else a string such as "Infinity"
    }
    return ok_status();
  }));
  if (type.has_value && kind == TypeKind::floating && type.value) return json.error("expected as_float");
  if (type.has_value && kind != TypeKind::floating && !type.value) return json.error("expected as_int or as_bool");
  return pool().types.intern(std::move(type));
}

// The type of a value, by its name and the kind of reference.
Result<TypeId> Pt2Reader::value_type(const Json& at, std::string_view tag, std::string_view name, const Scope& scope) {
  struct Table {
    std::string_view tag, key;
    const Values* values;
  };
  const Table kTables[] = {{"as_tensor", "tensor_values", &scope.tensors},
                           {"as_sym_int", "sym_int_values", &scope.ints},
                           {"as_sym_float", "sym_float_values", &scope.floats},
                           {"as_sym_bool", "sym_bool_values", &scope.bools},
                           {"as_custom_obj", "custom_obj_values", &scope.objects}};
  for (const Table& table : kTables) {
    if (table.tag != tag) continue;
    const element* value = table.values->find(name);
    if (value == nullptr) return Pool::kUnknownType;  // inferred later, or reported by the verifier
    JsonPlace graph{nullptr, paths_[scope.number], 0, true};
    JsonPlace list = JsonPlace::at_key(&graph, table.key), place = JsonPlace::at_key(&list, name);
    Json json{*value, &place, &text_};
    if (tag == "as_tensor") return tensor_type(json);
    if (tag == "as_sym_int") return scalar_type(json, TypeKind::integer);
    if (tag == "as_sym_float") return scalar_type(json, TypeKind::floating);
    if (tag == "as_sym_bool") return scalar_type(json, TypeKind::boolean);
    SG_ASSIGN(std::string_view fqn, need_string(json, "class_fqn"));
    return opaque_type(fqn);
  }
  return at.error("`" + std::string(tag) + "` names no value");
}

}  // namespace sg
