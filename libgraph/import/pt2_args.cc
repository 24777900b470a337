// Arguments of exported nodes: a union of some thirty kinds, positional or named.
#include <limits>

#include "libgraph/import/pt2_read.h"

namespace sg {
namespace {

constexpr int64_t kKeyword = 2;

Result<double> read_float(const Json& json) {
  double number = 0;
  if (!json.element.get(number)) return number;
  std::string_view name;
  if (!json.element.get(name)) {
    if (name == "Infinity" || name == "inf") return std::numeric_limits<double>::infinity();
    if (name == "-Infinity" || name == "-inf") return -std::numeric_limits<double>::infinity();
    if (name == "NaN" || name == "N") return std::numeric_limits<double>::quiet_NaN();
  }
  return json.error("expected a number, \"Infinity\", \"-Infinity\" or \"NaN\"");
}

constexpr std::pair<std::string_view, std::string_view> kBare[] = {
    {"-Infinity", "\"-inf\"   "}, {"Infinity", "\"inf\"   "}, {"NaN", "\"N\""}};

Result<Arg> read_complex(const Json& json) {
  double parts[2] = {};
  for (int i = 0; i < 2; ++i)
    SG_TRY(need_field(json, i == 0 ? "real" : "imag", [&](const Json& part) -> Status {
      SG_ASSIGN(parts[i], read_float(part));
      return ok_status();
    }));
  return Arg::complex(parts[0], parts[1]);
}

Result<std::string_view> read_memory_format(const Json& json) {
  static constexpr std::string_view kNames[] = {"", "contiguous_format", "channels_last", "channels_last_3d",
                                                "preserve_format"};
  SG_ASSIGN(int64_t number, json.integer());
  if (number > 0 && number < static_cast<int64_t>(std::size(kNames))) return kNames[number];
  return json.error("the memory format of number " + std::to_string(number) + " is none that this version knows");
}

Result<std::string_view> read_layout(const Json& json) {
  SG_ASSIGN(int64_t number, json.integer());
  if (const std::string_view name = pt2_layout(number); !name.empty()) return name;
  return json.error("the layout of number " + std::to_string(number) + " is none that this version knows");
}

// "as_tensors" -> "as_tensor": the kind of a list's items; empty if the kind is no list.
std::string_view item_tag(std::string_view tag) {
  static constexpr std::pair<std::string_view, std::string_view> kLists[] = {
      {"as_tensors", "as_tensor"},
      {"as_ints", "as_int"},
      {"as_floats", "as_float"},
      {"as_strings", "as_string"},
      {"as_sym_ints", "as_sym_int"},
      {"as_sym_floats", "as_sym_float"},
      {"as_bools", "as_bool"},
      {"as_sym_bools", "as_sym_bool"},
      {"as_optional_tensors", "as_optional_tensor"},
      {"as_nested_tensors", "as_tensors"},
      {"as_int_lists", "as_ints"},
      {"as_float_lists", "as_floats"}};
  for (const auto& [list, item] : kLists)
    if (list == tag) return item;
  return {};
}

}  // namespace

void quote_bare_numbers(std::string* json) {
  if (json->find("Infinity") == std::string::npos && json->find("NaN") == std::string::npos) return;
  bool in_string = false;
  for (size_t i = 0; i < json->size(); ++i) {
    const char c = (*json)[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string || (c != '-' && c != 'I' && c != 'N')) continue;
    for (const auto& [bare, quoted] : kBare)
      if (std::string_view(*json).substr(i).starts_with(bare)) {
        json->replace(i, bare.size(), quoted);
        i += bare.size() - 1;
        break;
      }
  }
}

Arg Pt2Reader::reference(std::string_view name, SourceNode* node) {
  node->refs.push_back({str(name), node->place});
  return Arg::value(ValueId(static_cast<uint32_t>(node->refs.size() - 1)));
}

// {"as_name": NAME}, or the literal that a list of symbols may hold instead.
Result<Arg> Pt2Reader::read_named(const Json& json, std::string_view literal, SourceNode* node) {
  Arg arg;
  SG_TRY(with_union(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "as_name") {
      SG_ASSIGN(std::string_view name, value.string());
      arg = reference(name, node);
      return ok_status();
    }
    if (key != literal) return value.error("expected as_name or " + std::string(literal));
    SG_ASSIGN(arg, read_tagged(literal, value, node, 0));
    return ok_status();
  }));
  return arg;
}

Result<Arg> Pt2Reader::read_list(const Json& json, std::string_view tag, SourceNode* node, int depth) {
  ArgList items;
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(Arg arg, read_tagged(tag, item, node, depth + 1));
    items.push_back(std::move(arg));
    return ok_status();
  }));
  return Arg::list(std::move(items));
}

Result<Arg> Pt2Reader::read_dict(const Json& json, SourceNode* node, int depth) {
  ArgList entries;
  KeysMet seen;
  SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
    if (!seen.add(key)) return value.error("the key occurs twice");
    SG_ASSIGN(Arg arg, read_arg(value, node, depth + 1));
    entries.push_back(std::move(arg.set_key(str(key))));
    return ok_status();
  }));
  return Arg::dict(std::move(entries));
}

Result<Arg> Pt2Reader::read_arg(const Json& json, SourceNode* node, int depth) {
  Arg arg;
  SG_TRY(with_union(json, [&](std::string_view tag, const Json& value) -> Status {
    SG_ASSIGN(arg, read_tagged(tag, value, node, depth));
    return ok_status();
  }));
  return arg;
}

Result<Arg> Pt2Reader::read_tagged(std::string_view tag, const Json& json, SourceNode* node, int depth) {
  if (depth > kMaxPt2Depth) return json.error("the argument nests too deep");
  auto text = [&](ArgKind kind, std::string_view s) { return Arg::text(kind, str(s)); };
  if (tag == "as_none") return Arg::none();
  if (tag == "as_tensor" || tag == "as_custom_obj") {
    SG_ASSIGN(std::string_view name, need_string(json, "name"));
    return reference(name, node);
  }
  if (tag == "as_int") {
    SG_ASSIGN(int64_t number, json.integer());
    return Arg::integer(number);
  }
  if (tag == "as_float") {
    SG_ASSIGN(double number, read_float(json));
    return Arg::floating(number);
  }
  if (tag == "as_bool") {
    SG_ASSIGN(bool b, json.boolean());
    return Arg::boolean(b);
  }
  if (tag == "as_string" || tag == "as_operator") {
    SG_ASSIGN(std::string_view s, json.string());
    return text(tag == "as_string" ? ArgKind::string : ArgKind::op, s);
  }
  if (tag == "as_sym_int") return read_named(json, "as_int", node);
  if (tag == "as_sym_float") return read_named(json, "as_float", node);
  if (tag == "as_sym_bool") return read_named(json, "as_bool", node);
  if (tag == "as_scalar_type") {
    SG_ASSIGN(DType dtype, pt2_dtype(json));
    return Arg::dtype(dtype);
  }
  if (tag == "as_memory_format") {
    SG_ASSIGN(std::string_view name, read_memory_format(json));
    return text(ArgKind::memory_format, name);
  }
  if (tag == "as_layout") {
    SG_ASSIGN(std::string_view name, read_layout(json));
    return text(ArgKind::layout, name);
  }
  if (tag == "as_device") {
    SG_ASSIGN(std::string device, pt2_device(json));
    return text(ArgKind::device, device);
  }
  if (tag == "as_complex") return read_complex(json);
  if (tag == "as_optional_tensor") return read_arg(json, node, depth + 1);
  if (tag == "as_graph") {
    SG_ASSIGN(std::string_view name, need_string(json, "name"));
    NestedId id;
    SG_TRY(
        need_field(json, "graph", [&](const Json& graph) { return read_nested_graph(graph, name, depth + 1, &id); }));
    return Arg::graph(id);
  }
  if (tag == "as_string_to_argument") return read_dict(json, node, depth);
  if (std::string_view item = item_tag(tag); !item.empty()) return read_list(json, item, node, depth);
  context_->tally.kept_raw("arguments." + std::string(tag), json);
  return text(ArgKind::opaque, "{\"" + std::string(tag) + "\":" + canonical_json(json.element) + "}");
}

// Arguments are positional as long as they are at their position in the schema; after that they are keywords.
Status Pt2Reader::read_inputs_of(const Json& json, const OpInfo* info, SourceNode* node, int depth) {
  bool is_positional = true;
  KeysMet seen;
  return for_each_item(json, [&](size_t i, const Json& item) -> Status {
    SG_ASSIGN(std::string_view name, need_string(item, "name"));
    int64_t kind = 0;
    SG_TRY(with_field(item, "kind", [&](const Json& k) -> Status {
      SG_ASSIGN(kind, k.integer());
      return ok_status();
    }));
    int index = info == nullptr || name.empty() ? static_cast<int>(i) : info->param_index(name);
    bool is_keyword_only = info != nullptr && index >= 0 && index < static_cast<int>(info->params.size()) &&
                           info->params[static_cast<size_t>(index)].keyword_only && !name.empty();
    is_positional = is_positional && kind != kKeyword && !is_keyword_only &&
                    (index == static_cast<int>(i) || (index < 0 && kind == 1));
    if (!is_positional && name.empty()) return item.error("a positional argument after a keyword argument");
    if (!name.empty() && !seen.add(name)) return item.error("the argument `" + std::string(name) + "` occurs twice");
    return need_field(item, "arg", [&](const Json& value) -> Status {
      SG_ASSIGN(Arg arg, read_arg(value, node, depth));
      if (!is_positional) arg.set_key(str(name));
      node->args.push_back(std::move(arg));
      return ok_status();
    });
  });
}

}  // namespace sg
