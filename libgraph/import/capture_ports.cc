// Inputs and outputs of a captured graph.
#include "libgraph/facts/scheduled.h"
#include "libgraph/import/capture_graph.h"

namespace sg {

Status GraphReader::read_input(size_t index, const Json& json) {
  Input input;
  Extras extras;
  std::string_view name;
  TypeId type;
  bool is_typed = false;
  SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "name") {
      SG_ASSIGN(name, value.string());
      return declare(value, name, true, index);
    }
    if (key == "type") {
      SG_ASSIGN(type, read_type(context_, value, &extras, json.place));
      is_typed = true;
      return ok_status();
    }
    if (value.is_null()) return ok_status();
    if (key == "kind") return read_input_kind(value, &input.kind);
    return read_input_field(key, value, &input, &extras);
  }));
  if (name.empty()) return json.error("the input has no `name`");
  if (!is_typed) return json.error("the input has no `type`");
  input.extra = extras.take(&context_->pool());
  if (input.kind == InputKind::opaque) {
    if (input.of) opaque_inputs_.try_emplace(context_->pool().strings[input.of], index);
  } else if (input.fqn) {
    named_inputs_.try_emplace(context_->pool().strings[input.fqn], index);
  }
  graph_->add_input(name, type, std::move(input));
  return ok_status();
}

Status GraphReader::read_input_kind(const Json& json, InputKind* kind) {
  static constexpr std::pair<std::string_view, InputKind> kKinds[] = {{"input", InputKind::user},
                                                                      {"parameter", InputKind::parameter},
                                                                      {"buffer", InputKind::buffer},
                                                                      {"constant", InputKind::constant},
                                                                      {"opaque", InputKind::opaque},
                                                                      {"tangent", InputKind::tangent},
                                                                      {"optimizer_state", InputKind::optimizer_state}};
  SG_ASSIGN(std::string_view word, json.string());
  for (const auto& [name, k] : kKinds)
    if (name == word) return *kind = k, ok_status();
  return json.error("unknown input kind `" + std::string(word) + "`",
                    "the kinds are input, parameter, buffer, constant, opaque, tangent and optimizer_state");
}

Status GraphReader::read_input_field(std::string_view key, const Json& value, Input* input, Extras* extras) {
  SG_ASSIGN(bool is_sharding, read_sharding(context_, key, value, &input->sharding));
  if (is_sharding) return ok_status();
  StrId* text = key == "fqn"      ? &input->fqn
                : key == "of"     ? &input->of
                : key == "attr"   ? &input->attribute
                : key == "digest" ? &input->digest
                                  : nullptr;
  if (text == nullptr) {
    const bool is_free = key == "tied" || key == kScheduledKey;
    if (!is_free) context_->tally.unknown_key("inputs", key, value);
    extras->add(std::string(key), canonical_json(value.element));
    return ok_status();
  }
  SG_ASSIGN(std::string_view s, value.string());
  *text = context_->str(s);
  return ok_status();
}

Status GraphReader::read_output(const Json& json) {
  Output output;
  Extras extras;
  if (json.is_null()) {
    output.kind = OutputKind::none;
  } else if (element ref; json.is_object() && !json.element["ref"].get(ref)) {
    SG_TRY(read_output_value(json, &output));
  } else {
    std::string_view of;
    bool has_kind = false;
    SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
      if (value.is_null()) return ok_status();
      if (key == "value") return read_output_value(value, &output);
      if (key == "kind") return has_kind = true, read_output_kind(value, &output, &extras);
      return read_output_field(key, value, &of, &output, &extras);
    }));
    if (!has_kind && !output.value) output.kind = OutputKind::none;
    if (of.data() != nullptr) resolve_of(of, &output);
  }
  output.extra = extras.take(&context_->pool());
  graph_->add_output(std::move(output));
  return ok_status();
}

Status GraphReader::read_output_value(const Json& json, Output* output) {
  element ref;
  if (!json.is_object() || json.element["ref"].get(ref))
    return json.error("expected {\"ref\": name} or null, not " + std::string(json_kind(json.element)));
  JsonPlace place = JsonPlace::at_key(json.place, "ref");
  Json at{ref, &place, json.text};
  SG_ASSIGN(std::string_view name, at.string());
  SG_ASSIGN(Arg arg, resolve(at, name));
  if (!arg.is(ArgKind::value))
    return at.error("`" + std::string(name) + "` has several results; an output is one of them");
  output->value = arg.as_value();
  return ok_status();
}

Status GraphReader::read_output_kind(const Json& json, Output* output, Extras* extras) {
  static constexpr std::pair<std::string_view, OutputKind> kKinds[] = {
      {"loss", OutputKind::loss},     {"gradient", OutputKind::gradient}, {"buffer", OutputKind::buffer},
      {"opaque", OutputKind::opaque}, {"none", OutputKind::none},         {"output", OutputKind::other},
      {"other", OutputKind::other}};
  SG_ASSIGN(std::string_view word, json.string());
  for (const auto& [name, kind] : kKinds)
    if (name == word) return output->kind = kind, ok_status();
  context_->tally.kept_raw("outputs.kind", json);
  extras->add("kind", canonical_json(json.element));
  return ok_status();
}

Status GraphReader::read_output_field(std::string_view key, const Json& value, std::string_view* of, Output* output,
                                      Extras* extras) {
  SG_ASSIGN(bool is_sharding, read_sharding(context_, key, value, &output->sharding));
  if (is_sharding) return ok_status();
  if (key == "of") {
    SG_ASSIGN(*of, value.string());
  } else if (key == "attr") {
    SG_ASSIGN(std::string_view attribute, value.string());
    output->attribute = context_->str(attribute);
  } else {
    context_->tally.unknown_key("outputs", key, value);
    extras->add(std::string(key), canonical_json(value.element));
  }
  return ok_status();
}

void GraphReader::resolve_of(std::string_view of, Output* output) {
  const auto& index = output->kind == OutputKind::opaque ? opaque_inputs_ : named_inputs_;
  const size_t* input = index.find(of);
  if (input) output->of = graph_->inputs()[*input].value;
  else output->of_name = context_->str(of);
}

}  // namespace sg
