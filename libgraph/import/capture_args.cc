#include <limits>

#include "libgraph/import/capture_read.h"

namespace sg {
namespace {

class ArgReader {
 public:
  ArgReader(ImportContext* context, const PlacedNode& node, NameScope* scope, Extras* extras)
      : context_(context), node_(node), scope_(scope), extras_(extras) {}

  Result<Arg> read(const Json& json, bool is_group, int depth) {
    using simdjson::dom::element_type;
    if (depth > kMaxCaptureDepth) return json.error("the argument nests too deep");
    switch (json.element.type()) {
      case element_type::NULL_VALUE: return Arg::none();
      case element_type::BOOL: return Arg::boolean(json.element.get_bool().value_unsafe());
      case element_type::INT64: return Arg::integer(json.element.get_int64().value_unsafe());
      case element_type::UINT64: return json.error("the integer does not fit 64 bits with sign");
      case element_type::DOUBLE: return Arg::floating(json.element.get_double().value_unsafe());
      case element_type::STRING: return string(json, is_group);
      case element_type::ARRAY: return list(json, depth);
      case element_type::OBJECT: return object(json, depth);
    }
    return Error{ErrorKind::internal, "a JSON type without a name", json.where(), {}};
  }

 private:
  Result<Arg> string(const Json& json, bool is_group) {
    std::string_view s = json.element.get_string().value_unsafe();
    if (!is_group) return Arg::text(ArgKind::string, context_->str(s));
    SG_ASSIGN(GroupId group, scope_->group(json, s));
    return Arg::group(group);
  }

  Result<Arg> list(const Json& json, int depth) {
    ArgList items;
    items.reserve(json.size());
    SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
      SG_ASSIGN(Arg arg, read(item, false, depth + 1));
      items.push_back(std::move(arg));
      return ok_status();
    }));
    return Arg::list(std::move(items));
  }

  // Objects such as {"ref": ...}: one key determines the kind; other keys are kept as free keys.
  Result<Arg> object(const Json& json, int depth) {
    std::optional<Arg> arg;
    std::string_view tag;
    SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
      SG_ASSIGN(std::optional<Arg> found, tagged(key, value, depth));
      if (!found) {
        context_->tally.unknown_key("arguments", key, value);
        extras_->add(print_place(value.place, node_.place), canonical_json(value.element));
      } else if (arg) {
        return value.error("the argument is both `" + std::string(tag) + "` and `" + std::string(key) + "`");
      } else {
        arg = std::move(found);
        tag = key;
      }
      return ok_status();
    }));
    if (arg) return std::move(*arg);
    return Arg::text(ArgKind::opaque, context_->str(canonical_json(json.element)));
  }

  // Empty if `tag` is not one of the format's.
  Result<std::optional<Arg>> tagged(std::string_view tag, const Json& value, int depth) {
    static constexpr std::pair<std::string_view, ArgKind> kTexts[] = {
        {"device", ArgKind::device},   {"layout", ArgKind::layout}, {"memory_format", ArgKind::memory_format},
        {"enum", ArgKind::enumerator}, {"op", ArgKind::op},         {"opaque", ArgKind::opaque}};
    for (const auto& [name, kind] : kTexts) {
      if (name != tag) continue;
      SG_ASSIGN(std::string_view text, value.string());
      return std::optional(Arg::text(kind, context_->str(text)));
    }
    if (tag == "ref") return wrap(named(value, [&](std::string_view name) { return scope_->resolve(value, name); }));
    if (tag == "dtype") return wrap(dtype(value));
    if (tag == "float") return wrap(special_float(value));
    if (tag == "sym") return wrap(symbolic(value));
    if (tag == "complex") return wrap(complex(value));
    if (tag == "slice") return wrap(slice(value, depth));
    if (tag == "dict") return wrap(dict(value, depth));
    if (tag == "graph")
      return wrap(named(value, [&](std::string_view name) -> Result<Arg> {
        SG_ASSIGN(NestedId id, scope_->nested(value, name));
        return Arg::graph(id);
      }));
    if (tag == "group")
      return wrap(named(value, [&](std::string_view name) -> Result<Arg> {
        SG_ASSIGN(GroupId id, scope_->group(value, name));
        return Arg::group(id);
      }));
    return std::optional<Arg>();
  }

  static Result<std::optional<Arg>> wrap(Result<Arg> arg) {
    if (!arg.ok()) return std::move(arg.error());
    return std::optional(std::move(arg).value());
  }

  template <class Fn>
  Result<Arg> named(const Json& value, const Fn& fn) {
    SG_ASSIGN(std::string_view name, value.string());
    return fn(name);
  }

  Result<Arg> dtype(const Json& value) {
    SG_ASSIGN(std::string_view name, value.string());
    if (auto dtype = parse_torch_dtype(name)) return Arg::dtype(*dtype);
    return value.error("unknown dtype `" + std::string(name) + "`", "dtypes are spelled as in PyTorch: float32, int64");
  }

  Result<Arg> special_float(const Json& value) {
    SG_ASSIGN(std::string_view name, value.string());
    if (name == "inf") return Arg::floating(std::numeric_limits<double>::infinity());
    if (name == "-inf") return Arg::floating(-std::numeric_limits<double>::infinity());
    if (name == "nan") return Arg::floating(std::numeric_limits<double>::quiet_NaN());
    return value.error("unknown float `" + std::string(name) + "`", "the names are inf, -inf and nan");
  }

  Result<Arg> symbolic(const Json& value) {
    SG_ASSIGN(Expr e, context_->parse_expr(value));
    return Arg::expr(e);
  }

  Result<double> number(const Json& value) {
    double d = 0;
    if (!value.element.get(d)) return d;
    simdjson::dom::element name;
    if (!value.is_object() || value.element["float"].get(name)) return value.error("expected a number");
    JsonPlace place = JsonPlace::at_key(value.place, "float");
    SG_ASSIGN(Arg arg, special_float({name, &place, value.text}));
    return arg.as_float();
  }

  Result<Arg> complex(const Json& value) {
    double parts[2] = {};
    size_t count = 0;
    SG_TRY(for_each_item(value, [&](size_t i, const Json& item) -> Status {
      if (++count > 2) return item.error("a complex number has two parts");
      SG_ASSIGN(parts[i], number(item));
      return ok_status();
    }));
    if (count != 2) return value.error("a complex number has two parts");
    return Arg::complex(parts[0], parts[1]);
  }

  Result<Arg> slice(const Json& value, int depth) {
    SG_ASSIGN(Arg items, list(value, depth));
    ArgList& parts = items.mutable_items();
    if (parts.size() != 3) return value.error("a slice has three parts: begin, end, step");
    return Arg::slice(std::move(parts[0]), std::move(parts[1]), std::move(parts[2]));
  }

  Result<Arg> dict(const Json& value, int depth) {
    ArgList entries;
    entries.reserve(value.size());
    KeysMet met;
    SG_TRY(for_each_field(value, [&](std::string_view key, const Json& item) -> Status {
      if (!met.add(key)) return item.error("the key occurs twice");
      SG_ASSIGN(Arg arg, read(item, false, depth + 1));
      entries.push_back(std::move(arg.set_key(context_->str(key))));
      return ok_status();
    }));
    return Arg::dict(std::move(entries));
  }

  ImportContext* context_;
  const PlacedNode& node_;
  NameScope* scope_;
  Extras* extras_;
};

const Param* param_named(const OpInfo* op, std::string_view name) {
  if (op == nullptr) return nullptr;
  for (const Param& param : op->params)
    if (param.name == name) return &param;
  return nullptr;
}

}  // namespace

Result<std::vector<Arg>> read_args(ImportContext* context, const PlacedNode& node, const OpInfo* op, NameScope* scope,
                                   Extras* extras) {
  std::vector<Arg> args;
  ArgReader reader(context, node, scope, extras);
  auto add = [&](const Json& json, const Param* param, StrId key) -> Status {
    SG_ASSIGN(Arg arg, reader.read(json, param != nullptr && param->kind == ParamKind::group, 0));
    if (param != nullptr && param->name == "rank" && arg.is(ArgKind::integer))
      context->tally.own_rank_literal(node.record->op, json);
    arg.set_key(key);
    args.push_back(std::move(arg));
    return ok_status();
  };
  SG_TRY(node.with(NodeField::args, [&](const Json& list) {
    args.reserve(list.size());
    return for_each_item(list, [&](size_t i, const Json& json) {
      return add(json, op != nullptr && i < op->params.size() ? &op->params[i] : nullptr, StrId());
    });
  }));
  SG_TRY(node.with(NodeField::kwargs, [&](const Json& dict) {
    KeysMet met;
    args.reserve(args.size() + dict.size());
    return for_each_field(dict, [&](std::string_view key, const Json& json) -> Status {
      if (!met.add(key)) return json.error("the keyword argument occurs twice");
      return add(json, param_named(op, key), context->str(key));
    });
  }));
  return args;
}

}  // namespace sg
