// Inputs and outputs: the graph's lists, combined with the signature's roles.
#include "libgraph/import/pt2_read.h"

namespace sg {
namespace {

// The argument of a port: the kind of reference and the name, or a literal.
struct Port {
  std::string_view tag;
  std::string_view name;  // empty = a literal, or nothing
  Status read(const Json& arg) {
    return with_union(arg, [&](std::string_view key, const Json& value) -> Status {
      tag = key;
      bool is_scalar = key == "as_sym_int" || key == "as_sym_float" || key == "as_sym_bool";
      if (key == "as_tensor" || key == "as_custom_obj" || key == "as_token" || is_scalar) {
        simdjson::dom::element field;
        std::string_view field_name = is_scalar ? "as_name" : "name";
        if (is_scalar && value.is_object() && value.element[field_name].get(field)) return ok_status();  // a number
        SG_ASSIGN(name, need_string(value, field_name));
        if (name.empty()) return value.error("the name is empty");
      }
      return ok_status();
    });
  }
};

}  // namespace

// Calls `fn(arg, spec, index)` for the ports of two lists, which must have equal lengths.
template <class Fn>
static Status for_each_pair(const Json& args, const Json& specs, std::string_view what, const Fn& fn) {
  SG_ASSIGN(auto spec_list, specs.array());
  size_t count = 0;
  SG_TRY(for_each_item(args, [&](size_t, const Json&) -> Status { return ++count, ok_status(); }));
  size_t spec_count = 0;
  for (auto unused : spec_list) (void)unused, ++spec_count;
  if (count != spec_count)
    return specs.error("the graph has " + std::to_string(count) + " " + std::string(what) + ", the signature " +
                       std::to_string(spec_count));
  auto spec = spec_list.begin();
  return for_each_item(args, [&](size_t i, const Json& arg) -> Status {
    JsonPlace place = JsonPlace::at_index(specs.place, i);
    Json at{*spec, &place, specs.text};
    ++spec;
    return fn(arg, at, i);
  });
}

Status Pt2Reader::read_root_ports(const Json& graph, const Json& signature, Scope* scope, SourceGraph* out) {
  auto pairs = [&](std::string_view list, std::string_view specs, const auto& fn) {
    return need_field(graph, list, [&](const Json& args) {
      return need_field(signature, specs, [&](const Json& spec) { return for_each_pair(args, spec, list, fn); });
    });
  };
  SG_TRY(pairs("inputs", "input_specs", [&](const Json& arg, const Json& spec, size_t i) -> Status {
    SourceInput input;
    SG_TRY(read_input(arg, i, *scope, &input));
    SG_TRY(read_input_spec(spec, i, &input));
    out->inputs.push_back(std::move(input));
    return ok_status();
  }));
  return pairs("outputs", "output_specs", [&](const Json& arg, const Json& spec, size_t i) -> Status {
    SourceOutput output;
    SG_TRY(read_output(arg, i, *scope, &output));
    SG_TRY(read_output_spec(spec, &output));
    out->outputs.push_back(std::move(output));
    return ok_status();
  });
}

Status Pt2Reader::read_nested_ports(const Json& graph, Scope* scope, SourceGraph* out) {
  SG_TRY(need_field(graph, "inputs", [&](const Json& args) {
    return for_each_item(
        args, [&](size_t i, const Json& arg) { return read_input(arg, i, *scope, &out->inputs.emplace_back()); });
  }));
  return need_field(graph, "outputs", [&](const Json& args) {
    return for_each_item(
        args, [&](size_t i, const Json& arg) { return read_output(arg, i, *scope, &out->outputs.emplace_back()); });
  });
}

Status Pt2Reader::read_input(const Json& arg, size_t index, const Scope& scope, SourceInput* input) {
  input->place = scope.place(Part::inputs, index);
  Port port;
  SG_TRY(port.read(arg));
  if (port.name.empty()) {  // nothing, or a number fixed in the graph: keeps its position
    input->name = str("input_" + std::to_string(index));
    input->type = opaque_type(canonical_json(arg.element));
    input->input.kind = InputKind::opaque;
    return ok_status();
  }
  input->name = str(port.name);
  if (port.tag == "as_token") {
    input->type = opaque_type("token");
    input->input.kind = InputKind::opaque;
    return ok_status();
  }
  SG_ASSIGN(input->type, value_type(arg, port.tag, port.name, scope));
  if (input->type == Pool::kUnknownType)
    return arg.error("nothing says what type the input `" + std::string(port.name) + "` has");
  if (pool().types[input->type].kind == TypeKind::opaque) input->input.kind = InputKind::opaque;
  return ok_status();
}

Status Pt2Reader::read_input_spec(const Json& spec, size_t index, SourceInput* input) {
  struct Row {
    std::string_view key, name;
    InputKind kind;
  };
  static constexpr Row kRows[] = {{"parameter", "parameter_name", InputKind::parameter},
                                  {"buffer", "buffer_name", InputKind::buffer},
                                  {"tensor_constant", "tensor_constant_name", InputKind::constant},
                                  {"custom_obj", "custom_obj_name", InputKind::opaque},
                                  {"token", "", InputKind::opaque},
                                  {"user_input", "", InputKind::user}};
  return with_union(spec, [&](std::string_view key, const Json& value) -> Status {
    if (key == "constant_input") {  // a Python number, fixed in the graph wherever it is used
      SG_ASSIGN(std::string_view name, need_string(value, "name"));
      if (!name.empty()) input->input.fqn = input->name = str(name);
      return ok_status();
    }
    for (const Row& row : kRows) {
      if (row.key != key) continue;
      if (input->input.kind != InputKind::opaque) input->input.kind = row.kind;
      if (row.name.empty()) return ok_status();
      SG_ASSIGN(std::string_view fqn, need_string(value, row.name));
      input->input.fqn = str(fqn);
      bool persistent = true;
      SG_TRY(with_field(value, "persistent", [&](const Json& json) -> Status {
        SG_ASSIGN(persistent, json.boolean());
        return ok_status();
      }));
      if (!persistent) input->input.extra.push_back({str("persistent"), str("false")});
      return ok_status();
    }
    context_->tally.kept_raw("input_specs." + std::string(key), value);
    input->input.extra.push_back({str("spec"), str(canonical_json(spec.element))});
    (void)index;
    return ok_status();
  });
}

Status Pt2Reader::read_output(const Json& arg, size_t index, const Scope& scope, SourceOutput* output) {
  Port port;
  SG_TRY(port.read(arg));
  output->value.place = scope.place(Part::outputs, index);
  if (!port.name.empty() && port.tag != "as_token") {
    output->value.name = str(port.name);
    return ok_status();
  }
  output->output.kind = OutputKind::none;
  if (port.tag != "as_none") output->output.extra.push_back({str("value"), str(canonical_json(arg.element))});
  return ok_status();
}

Status Pt2Reader::read_output_spec(const Json& spec, SourceOutput* output) {
  struct Row {
    std::string_view key, of;
    OutputKind kind;
  };
  static constexpr Row kRows[] = {{"user_output", "", OutputKind::other},
                                  {"loss_output", "", OutputKind::loss},
                                  {"buffer_mutation", "buffer_name", OutputKind::buffer},
                                  {"parameter_mutation", "parameter_name", OutputKind::buffer},
                                  {"user_input_mutation", "user_input_name", OutputKind::buffer},
                                  {"gradient_to_parameter", "parameter_name", OutputKind::gradient},
                                  {"gradient_to_user_input", "user_input_name", OutputKind::gradient},
                                  {"token", "", OutputKind::none}};
  return with_union(spec, [&](std::string_view key, const Json& value) -> Status {
    for (const Row& row : kRows) {
      if (row.key != key) continue;
      if (output->value.name) output->output.kind = row.kind;
      if (row.of.empty()) return ok_status();
      SG_ASSIGN(std::string_view of, need_string(value, row.of));
      output->of = str(of);
      return ok_status();
    }
    context_->tally.kept_raw("output_specs." + std::string(key), value);
    output->output.extra.push_back({str("spec"), str(canonical_json(spec.element))});
    return ok_status();
  });
}

// For a joint graph: nodes after the loss that only gradients need are the backward.
void Pt2Reader::tell_phases(SourceGraph* graph) const {
  FlatMap<StrId, uint32_t> defined;
  for (uint32_t i = 0; i < graph->nodes.size(); ++i) {
    const SourceNode& node = graph->nodes[i];
    if (node.name) defined.try_emplace(node.name, i);
    for (StrId name : node.results.names)
      if (name) defined.try_emplace(name, i);
  }
  std::vector<bool> needed(graph->nodes.size());
  std::optional<uint32_t> loss;
  bool has_gradients = false;
  for (const SourceOutput& output : graph->outputs) {
    has_gradients = has_gradients || output.output.kind == OutputKind::gradient;
    const uint32_t* node = output.value.name ? defined.find(output.value.name) : nullptr;
    if (node == nullptr || output.output.kind == OutputKind::gradient) continue;
    needed[*node] = true;
    if (output.output.kind == OutputKind::loss) loss = *node;
  }
  if (!loss || !has_gradients) return;
  for (size_t i = graph->nodes.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const SourceRef& ref : graph->nodes[i].refs)
      if (const uint32_t* node = defined.find(ref.name); node != nullptr && *node < i) needed[*node] = true;
  }
  for (size_t i = *loss + 1; i < graph->nodes.size(); ++i)
    if (!needed[i]) graph->nodes[i].phase = Phase::backward;
}

}  // namespace sg
