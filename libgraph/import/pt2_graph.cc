// Graphs and nodes of exported programs: named results, nested graphs, module and source line from the metadata.
#include <algorithm>
#include <charconv>

#include "libgraph/import/gzip.h"
#include "libgraph/import/pt2_read.h"
#include "libgraph/import/source_build.h"

namespace sg {
namespace {

constexpr uint32_t kMaxGraphs = 1 << 16;

// Indexes a table of values: {name: meta, ...}.
Status index_values(const Json& graph, std::string_view key, FlatTextMap<simdjson::dom::element>* out) {
  return with_field(graph, key, [&](const Json& values) {
    return for_each_field(values, [&](std::string_view name, const Json& value) -> Status {
      if (!out->try_emplace(name, value.element).second) return value.error("the value occurs twice");
      return ok_status();
    });
  });
}

// Frames of torch itself, and of generated code.
bool is_torch_file(std::string_view file) {
  return file.starts_with("torch/") || file.find("/torch/") != std::string_view::npos || file.starts_with("<");
}

}  // namespace

Status Pt2Reader::open_scope(const Json& graph, Scope* scope) {
  scope->number = static_cast<uint32_t>(paths_.size());
  if (scope->number == kMaxGraphs) return graph.error("more than " + std::to_string(kMaxGraphs) + " graphs");
  paths_.push_back(print_place(graph.place));
  SG_TRY(index_values(graph, "tensor_values", &scope->tensors));
  SG_TRY(index_values(graph, "sym_int_values", &scope->ints));
  SG_TRY(index_values(graph, "sym_float_values", &scope->floats));
  SG_TRY(index_values(graph, "sym_bool_values", &scope->bools));
  return index_values(graph, "custom_obj_values", &scope->objects);
}

Status Pt2Reader::read_nodes(const Json& graph, Scope* scope, SourceGraph* out, int depth) {
  return need_field(graph, "nodes", [&](const Json& nodes) {
    return for_each_item(nodes, [&](size_t i, const Json& node) {
      scope->node = static_cast<uint32_t>(i);
      return read_node(node, scope, out, depth);
    });
  });
}

Status Pt2Reader::read_node(const Json& json, Scope* scope, SourceGraph* out, int depth) {
  SourceNode node;
  node.place = scope->place(Part::nodes, scope->node);
  SG_ASSIGN(std::string_view target, need_string(json, "target"));
  if (target.empty()) return json.error("the target is empty");
  std::string op = op_of_target(target);
  const OpInfo* info = find_op(op);
  SG_TRY(with_field(json, "name", [&](const Json& name) -> Status {
    SG_ASSIGN(std::string_view text, name.string());
    if (!text.empty()) node.name = str(text);
    return ok_status();
  }));
  SG_TRY(need_field(json, "inputs", [&](const Json& inputs) { return read_inputs_of(inputs, info, &node, depth); }));
  bool is_single = !op.starts_with("higher_order.");  // a single result of a higher-order op may be a tuple of one
  SG_TRY(with_field(json, "is_hop_single_tensor_return", [&](const Json& flag) -> Status {
    SG_ASSIGN(bool is_hop_single, flag.boolean());
    is_single = is_single || is_hop_single;
    return ok_status();
  }));
  if (op == "higher_order.wrap_with_autocast")
    return json.error("the program has a region under torch.autocast, whose casts are not in the archive",
                      "program.run_decompositions() before torch.export.save puts them in");
  if (call_body(&op, &node.args)) is_single = false;
  node.op = str(op);
  std::vector<SourceNode> after;
  SG_TRY(need_field(json, "outputs",
                    [&](const Json& outputs) { return read_results(outputs, is_single, scope, &node, &after); }));
  SG_TRY(with_field(json, "metadata", [&](const Json& meta) { return read_node_meta(meta, &node); }));
  if (node.results.shape == SourceResults::Shape::one) {
    node.name = node.results.names[0];
    node.results.names.clear();
  }
  out->nodes.push_back(std::move(node));
  for (SourceNode& n : after) out->nodes.push_back(std::move(n));
  return ok_status();
}

// One output is a single value or a list of tensors; several are a tuple.
Status Pt2Reader::read_results(const Json& json, bool is_single, Scope* scope, SourceNode* node,
                               std::vector<SourceNode>* after) {
  size_t count = 0;
  bool is_list = false;
  node->results.offset_is_guess = !tells_offsets_;
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
    element list;
    is_list = item.is_object() && !item.element["as_tensors"].get(list);
    ++count;
    return ok_status();
  }));
  if (count == 0) return node->results.shape = SourceResults::Shape::nothing, ok_status();
  if (count == 1 && is_list) {
    node->results.shape = SourceResults::Shape::tuple;
    return for_each_item(json, [&](size_t, const Json& item) {
      return need_field(item, "as_tensors", [&](const Json& list) {
        return for_each_item(list, [&](size_t, const Json& tensor) -> Status {
          SG_ASSIGN(std::string_view name, need_string(tensor, "name"));
          SG_ASSIGN(TypeId type, value_type(tensor, "as_tensor", name, *scope));
          node->results.types.push_back(type);
          node->results.names.push_back(str(name));
          return ok_status();
        });
      });
    });
  }
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) { return read_result(item, scope, node, after); }));
  bool is_one = count == 1 && is_single && node->results.names[0];
  node->results.shape = is_one ? SourceResults::Shape::one : SourceResults::Shape::tuple;
  if (count == 1 && is_single && !is_one) {  // None in place of a value
    node->results = {SourceResults::Shape::nothing, {}, {}, false};
  }
  return ok_status();
}

Status Pt2Reader::read_result(const Json& json, Scope* scope, SourceNode* node, std::vector<SourceNode>* after) {
  SourceResults& results = node->results;
  return with_union(json, [&](std::string_view tag, const Json& value) -> Status {
    if (tag == "as_none") {
      results.types.push_back(none_type());
      results.names.push_back(StrId());
      return ok_status();
    }
    if (tag == "as_tensors") {  // a list among the results: getitems after the node take it apart
      Type list;
      list.kind = TypeKind::list;
      std::string base = (node->name ? pool().strings.str(node->name) : std::string("list")) + "_list_" +
                         std::to_string(results.types.size());
      StrId list_name = str(base);
      SG_TRY(for_each_item(value, [&](size_t i, const Json& tensor) -> Status {
        SG_ASSIGN(std::string_view name, need_string(tensor, "name"));
        SG_ASSIGN(TypeId type, value_type(tensor, "as_tensor", name, *scope));
        list.elements.push_back(type);
        SourceNode& getitem = after->emplace_back();
        getitem.place = node->place;
        getitem.name = str(name);
        getitem.op = str("python.getitem");
        getitem.refs.push_back({list_name, node->place});
        getitem.args = {Arg::value(ValueId(0)), Arg::integer(static_cast<int64_t>(i))};
        getitem.results = {SourceResults::Shape::one, {type}, {}, false};
        return ok_status();
      }));
      results.types.push_back(pool().types.intern(std::move(list)));
      results.names.push_back(list_name);
      return ok_status();
    }
    // Symbolic scalars refer to themselves as {"as_name": ...}; other scalars are not values of the graph.
    bool is_scalar = tag == "as_sym_int" || tag == "as_sym_float" || tag == "as_sym_bool";
    SG_ASSIGN(std::string_view name, need_string(value, is_scalar ? "as_name" : "name"));
    SG_ASSIGN(TypeId type, value_type(value, tag, name, *scope));
    results.types.push_back(type);
    results.names.push_back(str(name));
    return ok_status();
  });
}

Status Pt2Reader::read_nested_graph(const Json& json, std::string_view name, int depth, NestedId* id) {
  if (depth > kMaxPt2Depth) return json.error("graphs nest too deep");
  *id = NestedId(static_cast<uint32_t>(program_.nested.size()));
  program_.nested.emplace_back();
  std::string unique(name);  // different graphs may have equal names here
  for (uint32_t k = 1; !nested_names_.try_emplace(unique, 1).second; ++k) {
    k = std::max(k, nested_names_.find(name)->second++);
    unique = std::string(name) + "_" + std::to_string(k);
  }
  Scope scope;
  SG_TRY(open_scope(json, &scope));
  SourceGraph graph;
  SG_TRY(read_nested_ports(json, &scope, &graph));
  SG_TRY(read_nodes(json, &scope, &graph, depth + 1));
  SourceNested& nested = program_.nested[id->index];
  nested.name = str(unique);
  nested.place = scope.place(Part::nodes, 0);
  nested.graph = std::move(graph);
  return ok_status();
}

// --- metadata ---

Status Pt2Reader::read_node_meta(const Json& json, SourceNode* node) {
  return for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
    if (value.is_null()) return ok_status();
    SG_ASSIGN(std::string_view text, value.string());
    if (key == "stack_trace") read_stack_trace(text, node);
    else if (key == "nn_module_stack") read_module_stack(text, node);
    else if (key == "custom") return read_custom(value, node);
    else if (key != "torch_fn" && key != "source_fn_stack" && key != "from_node") {
      context_->tally.unknown_key("metadata", key, value);
      Extras extras;
      for (const KeyValue& kv : node->meta.extra) extras.add(pool().strings.str(kv.key), pool().strings.str(kv.json));
      extras.add(std::string(key), canonical_json(value.element));
      node->meta.extra = extras.take(&pool());
    }
    return ok_status();
  });
}

// JSON in a string: keys known from captures set their fields, others are kept.
Status Pt2Reader::read_custom(const Json& json, SourceNode* node) {
  SG_ASSIGN(std::string_view text, json.string());
  auto custom = std::make_unique<CaptureText>(text_.name(), std::string(text));
  Extras extras;
  for (const KeyValue& kv : node->meta.extra) extras.add(pool().strings.str(kv.key), pool().strings.str(kv.json));
  if (is_gzip(text) || !custom->parse().ok() || !custom->root().is_object()) {
    extras.add("custom", canonical_json(json.element));
  } else {
    NodeRecord record;
    record.fields[static_cast<size_t>(NodeField::custom)] = custom->root();
    record.present = 1u << static_cast<int>(NodeField::custom);
    PlacedNode placed{&record, json.place, custom.get()};
    if (!read_meta(context_, placed, &node->meta, &extras).ok())
      return json.error("`custom` says what it cannot: " + std::string(text.substr(0, 100)));
    customs_.push_back(std::move(custom));
  }
  node->meta.extra = extras.take(&pool());
  return ok_status();
}

// "key,path,type;key,path,type": the last one is the innermost module.
void Pt2Reader::read_module_stack(std::string_view text, SourceNode* node) {
  std::string_view last = text.substr(text.rfind(';') == std::string_view::npos ? 0 : text.rfind(';') + 1);
  size_t begin = last.find(',');
  if (begin == std::string_view::npos) return;
  std::string_view path = last.substr(begin + 1);
  path = path.substr(0, path.find(','));
  if (path.starts_with("L['self'].")) path.remove_prefix(10);
  if (path.empty() || path == "L['self']" || path.starts_with("_empty_nn_module_stack")) return;
  node->module = str(path);
}

// The innermost frame outside torch, else the innermost one.
void Pt2Reader::read_stack_trace(std::string_view text, SourceNode* node) {
  Source best;
  bool found = false;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!line.starts_with("File \"")) continue;
    line.remove_prefix(6);
    size_t quote = line.find('"');
    size_t number = line.find("line ", quote == std::string_view::npos ? line.size() : quote);
    if (quote == std::string_view::npos || number == std::string_view::npos) continue;
    std::string_view file = line.substr(0, quote), rest = line.substr(number + 5);
    Source source;
    auto [stop, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), source.line);
    if (problem != std::errc() || source.line == UINT32_MAX) continue;
    if (found && is_torch_file(file)) continue;
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
    source.file = str(file.substr(file.rfind('/') == std::string_view::npos ? 0 : file.rfind('/') + 1));
    source.function = str(rest.starts_with(", in ") ? rest.substr(5) : std::string_view());
    best = source;
    found = true;
  }
  if (found) node->source = pool().sources.intern(best);
}

}  // namespace sg
