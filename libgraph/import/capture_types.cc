#include <limits>

#include "libgraph/import/capture_read.h"

namespace sg {
namespace {

Result<std::vector<Expr>> read_sizes(ImportContext* context, const Json& json) {
  std::vector<Expr> out;
  out.reserve(json.size());
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(Expr e, context->expr(item));
    out.push_back(e);
    return ok_status();
  }));
  return out;
}

Result<DType> read_dtype(const Json& json) {
  SG_ASSIGN(std::string_view name, json.string());
  if (auto dtype = parse_torch_dtype(name)) return *dtype;
  return json.error("unknown dtype `" + std::string(name) + "`", "dtypes are spelled as in PyTorch: float32, int64");
}

// The known keys of a type object, collected in one pass.
struct TypeFields {
  enum Key { tensor, shape, stride, offset, device, scalar, value, opaque, kCount };
  static constexpr std::string_view kNames[kCount] = {"tensor", "shape",  "stride", "offset",
                                                      "device", "scalar", "value",  "opaque"};
  simdjson::dom::element elements[kCount];
  bool has[kCount] = {};
};

class TypeReader {
 public:
  TypeReader(ImportContext* context, const Json& json) : context_(context), json_(json) {}

  Result<Type> read(Extras* extras, const JsonPlace* owner) {
    int expected = 0;  // recorders usually write the keys in this order
    SG_TRY(for_each_field(json_, [&](std::string_view key, const Json& value) -> Status {
      for (int i = 0; i < TypeFields::kCount; ++i) {
        int k = (expected + i) % TypeFields::kCount;
        if (TypeFields::kNames[k] != key) continue;
        expected = k + 1;
        if (fields_.has[k]) return value.error("the key occurs twice");
        fields_.has[k] = true;
        fields_.elements[k] = value.element;
        return ok_status();
      }
      context_->tally.unknown_key("types", key, value);
      extras->add(print_place(value.place, owner), canonical_json(value.element));
      return ok_status();
    }));
    if (fields_.has[TypeFields::tensor]) return tensor();
    if (fields_.has[TypeFields::scalar]) return scalar();
    if (fields_.has[TypeFields::opaque]) return opaque();
    return json_.error("a type needs one of the keys `tensor`, `scalar`, `opaque`");
  }

 private:
  template <class Fn>
  auto with(TypeFields::Key key, const Fn& fn) {
    JsonPlace place = JsonPlace::at_key(json_.place, TypeFields::kNames[key]);
    return fn(Json{fields_.elements[key], &place, json_.text});
  }

  Result<Type> tensor() {
    Type type;
    type.kind = TypeKind::tensor;
    for (auto key : {TypeFields::shape, TypeFields::stride, TypeFields::device})
      if (!fields_.has[key])
        return json_.error("the tensor type has no `" + std::string(TypeFields::kNames[key]) + "`");
    SG_ASSIGN(type.dtype, with(TypeFields::tensor, read_dtype));
    auto sizes = [&](const Json& json) { return read_sizes(context_, json); };
    SG_ASSIGN(type.shape, with(TypeFields::shape, sizes));
    SG_ASSIGN(type.stride, with(TypeFields::stride, sizes));
    if (type.shape.size() != type.stride.size())
      return json_.error("the shape has " + std::to_string(type.shape.size()) + " axes, the stride " +
                         std::to_string(type.stride.size()));
    SG_ASSIGN(std::string_view device, with(TypeFields::device, [](const Json& json) { return json.string(); }));
    type.device = context_->str(device);
    type.offset = context_->constant(0);
    if (fields_.has[TypeFields::offset]) {
      SG_ASSIGN(type.offset, with(TypeFields::offset, [&](const Json& json) { return context_->expr(json); }));
    }
    return type;
  }

  Result<Type> scalar() {
    SG_ASSIGN(std::string_view kind, with(TypeFields::scalar, [](const Json& json) { return json.string(); }));
    Type type;
    type.has_value = fields_.has[TypeFields::value] && !fields_.elements[TypeFields::value].is_null();
    if (kind == "int") type.kind = TypeKind::integer;
    else if (kind == "float") type.kind = TypeKind::floating;
    else if (kind == "bool") type.kind = TypeKind::boolean;
    else return json_.error("unknown scalar kind `" + std::string(kind) + "`", "the kinds are int, float and bool");
    if (!type.has_value) return type;
    SG_TRY(with(TypeFields::value, [&](const Json& json) { return scalar_value(json, &type); }));
    return type;
  }

  Status scalar_value(const Json& json, Type* type) {
    if (type->kind == TypeKind::floating) {
      if (json.is_object()) {  // {"float": "inf"}, or a symbolic value, which has no number
        type->has_value = false;
        return ok_status();
      }
      if (json.element.get(type->float_value)) return json.error("expected a number");
    } else if (bool b = false; type->kind == TypeKind::boolean && !json.element.get(b)) {
      type->value = context_->constant(b ? 1 : 0);
    } else {
      SG_ASSIGN(type->value, context_->expr(json));
    }
    return ok_status();
  }

  Result<Type> opaque() {
    SG_ASSIGN(std::string_view text, with(TypeFields::opaque, [](const Json& json) { return json.string(); }));
    Type type;
    type.kind = TypeKind::opaque;
    type.text = context_->str(text);
    return type;
  }

  ImportContext* context_;
  const Json& json_;
  TypeFields fields_;
};

Result<std::vector<StrId>> read_strings(ImportContext* context, const Json& json) {
  std::vector<StrId> out;
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(std::string_view s, item.string());
    out.push_back(context->str(s));
    return ok_status();
  }));
  return out;
}

}  // namespace

Result<TypeId> read_type(ImportContext* context, const Json& json, Extras* extras, const JsonPlace* owner, int depth) {
  if (depth > kMaxCaptureDepth) return json.error("the type nests too deep");
  Type type;
  if (json.is_null()) {
    type.kind = TypeKind::none;
  } else if (json.is_array()) {
    type.kind = TypeKind::list;
    SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
      SG_ASSIGN(TypeId element, read_type(context, item, extras, owner, depth + 1));
      type.elements.push_back(element);
      return ok_status();
    }));
  } else {
    SG_ASSIGN(type, TypeReader(context, json).read(extras, owner));
  }
  return context->pool().types.intern(std::move(type));
}

Result<bool> read_sharding(ImportContext* context, std::string_view key, const Json& json, Sharding* sharding) {
  if (key == "global_shape") {
    SG_ASSIGN(sharding->global_shape, read_sizes(context, json));
  } else if (key == "placements") {
    SG_ASSIGN(sharding->placements, read_strings(context, json));
  } else if (key == "mesh_axes") {
    SG_ASSIGN(sharding->mesh_axes, read_strings(context, json));
  } else {
    return false;
  }
  return true;
}

// --- repeated texts and expressions ---

StrId ImportContext::str(std::string_view s) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  size_t place = s.empty() ? 0 : s.size() + 5 * byte(s.size() - 1) + 11 * byte(s.size() / 2);
  Known& known = lately_[place % lately_.size()];
  if (known.text == s) return known.id;
  known.id = pool().str(s);
  known.text = pool().strings[known.id];
  return known.id;
}

Expr ImportContext::constant(int64_t value) {
  constexpr int64_t kSmall = 4096;
  if (value < 0 || value >= kSmall) return pool().exprs.constant(value);
  if (small_.empty()) small_.resize(kSmall);
  Expr& e = small_[static_cast<size_t>(value)];
  if (!e) e = pool().exprs.constant(value);
  return e;
}

Result<Expr> ImportContext::parse_expr(const Json& json) {
  if (json.is_integer()) return constant(json.element.get_int64().value_unsafe());
  SG_ASSIGN(std::string_view text, json.string());
  if (const Expr* known = parsed_.find(text)) return *known;
  auto parsed = pool().exprs.parse(text);
  if (!parsed.ok() || pool().exprs.is_invalid(parsed.value()))
    return json.error("`" + std::string(text.substr(0, 200)) +
                      "`: " + (parsed.ok() ? "the expression overflows or divides by zero" : parsed.error().message));
  return *parsed_.try_emplace(parsed_texts_.emplace_back(text), parsed.value()).first;
}

Result<Expr> ImportContext::expr(const Json& json) {
  int64_t value = 0;
  if (json.element.type() == simdjson::dom::element_type::INT64 && !json.element.get(value)) return constant(value);
  simdjson::dom::element sym;
  if (!json.is_object() || json.element["sym"].get(sym))
    return json.error("expected an integer or {\"sym\": expression}, not " + std::string(json_kind(json.element)));
  JsonPlace place = JsonPlace::at_key(json.place, "sym");
  return parse_expr({sym, &place, json.text});
}

}  // namespace sg
