#include "librun/values/outputs.h"

#include <array>
#include <charconv>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <span>

#include "libgraph/base/nearest.h"
#include "libgraph/facts/port_names.h"
#include "librun/element.h"
#include "librun/values/inputs.h"

namespace sg {
namespace {

std::string input_name(const Graph& graph, ValueId v) {
  return std::string(port_name(graph, graph.inputs()[graph.value(v).index]));
}

bool has_value(const Graph& graph, const Output& output) {
  if (output.value.is_none() || output.kind == OutputKind::none || output.kind == OutputKind::opaque) return false;
  TypeKind kind = graph.type(output.value).kind;
  return kind == TypeKind::tensor || kind == TypeKind::integer || kind == TypeKind::floating ||
         kind == TypeKind::boolean;
}

NamedValue named_output(const Graph& graph, size_t i) {
  const Output& output = graph.outputs()[i];
  NamedValue out{output_key(i), "%" + std::string(graph.name(output.value)), output.value};
  if (output.kind == OutputKind::loss) out.title = "loss";
  if (output.kind == OutputKind::gradient) out.title = "gradient of " + std::string(target_name(graph, output));
  if (output.kind == OutputKind::buffer && output.of) out.title = "new " + input_name(graph, output.of);
  return out;
}

bool is_floating_number(const Type& type) {
  return type.kind == TypeKind::floating ||
         (type.kind == TypeKind::tensor && type.shape.empty() && is_floating(type.dtype));
}

NamedValue named_input(const Graph& graph, ValueId v) {
  return {"mutated." + std::string(graph.name(v)), "written input " + input_name(graph, v), v};
}

// The non-opaque input of that name or FQN; none if there is none. Opaque inputs share the FQN of their parameter.
ValueId find_input(const Graph& graph, std::string_view name) {
  for (const Input& input : graph.inputs())
    if (input.kind != InputKind::opaque && graph.name(input.value) == name) return input.value;
  for (const Input& input : graph.inputs())
    if (input.kind != InputKind::opaque && input.fqn && graph.pool().strings[input.fqn] == name) return input.value;
  return {};
}

// By position.
std::vector<bool> written_inputs(const Graph& graph, const AliasAnalysis& alias) {
  std::vector<bool> classes(alias.storages().size());
  for (NodeId n : graph.nodes())
    for (StorageId s : alias.writes(n)) classes[alias.storage(s).alias_class] = true;
  std::vector<bool> out;
  for (const Input& input : graph.inputs()) {
    const StorageId storage = alias.storage_of(input.value);
    out.push_back(storage && classes[alias.storage(storage).alias_class]);
  }
  return out;
}

// Index of the output with that name; none if there is none.
std::optional<size_t> find_output(const Graph& graph, std::string_view name) {
  const auto& outputs = graph.outputs();
  if (name == "loss") {
    std::vector<size_t> losses;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].kind == OutputKind::loss) losses.push_back(i);
    if (losses.size() == 1) return losses[0];
    if (losses.empty() && outputs.size() == 1) return 0;
    return std::nullopt;
  }
  if (name.starts_with("gradient:")) {
    name.remove_prefix(9);
    ValueId of = find_input(graph, name);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].kind == OutputKind::gradient &&
          ((of && outputs[i].of == of) || target_name(graph, outputs[i]) == name))
        return i;
    return std::nullopt;
  }
  size_t i = 0;
  if (!name.starts_with("out")) return std::nullopt;
  auto [end, error] = std::from_chars(name.data() + 3, name.data() + name.size(), i);
  if (error != std::errc() || end != name.data() + name.size() || i >= outputs.size()) return std::nullopt;
  return name == output_key(i) ? std::optional(i) : std::nullopt;
}

Nearest nearest_name(const Graph& graph, std::string_view name) {
  Nearest nearest(name);
  if (find_output(graph, "loss")) nearest.offer("loss");
  for (const Output& output : graph.outputs())
    if (output.kind == OutputKind::gradient && output.of)
      for (const std::string& of : {std::string(graph.name(output.of)), input_name(graph, output.of)})
        nearest.offer("gradient:" + of);
  for (const Input& input : graph.inputs())
    for (const std::string& of : {std::string(graph.name(input.value)), input_name(graph, input.value)})
      nearest.offer("mutated." + of);
  return nearest;
}

// Copies of tensors whose memory layout a file cannot represent; they must outlive the writing.
class Copies {
 public:
  TensorToWrite of(const NamedValue& named, const Tensor& t) {
    TensorToWrite out{named.name, t.dtype, {t.sizes().begin(), t.sizes().end()}, {}, t.data};
    if (t.conjugate) out.data = conjugated(t);
    else out.stride.assign(t.strides().begin(), t.strides().end());
    return out;
  }

  TensorToWrite of(const NamedValue& named, Scalar s) {
    TensorToWrite out{named.name, DType::i64, {}, {}, nullptr};
    std::string& bytes = memory_.emplace_back(8, '\0');
    if (s.kind == Scalar::Kind::boolean) out.dtype = DType::boolean;
    if (s.kind == Scalar::Kind::floating) out.dtype = DType::f64;
    if (s.is_integral()) std::memcpy(bytes.data(), &s.i, 8);
    else std::memcpy(bytes.data(), &s.re, 8);
    out.data = bytes.data();
    return out;
  }

 private:
  const void* conjugated(const Tensor& t) {
    std::string& bytes = memory_.emplace_back(static_cast<size_t>(t.bytes()), '\0');
    if (t.dtype == DType::c128) copy<C128>(t, reinterpret_cast<C128*>(bytes.data()));
    else copy<C64>(t, reinterpret_cast<C64*>(bytes.data()));
    return bytes.data();
  }

  template <class T>
  static void copy(const Tensor& t, T* out) {
    std::array<int64_t, kMaxRank> index{};
    for (int64_t n = t.elements(); n > 0; --n) {
      int64_t place = 0;
      for (size_t d = 0; d < static_cast<size_t>(t.rank); ++d) place += index[d] * t.stride[d];
      *out++ = std::conj(t.as<T>()[place]);
      for (int d = t.rank - 1; d >= 0 && ++index[static_cast<size_t>(d)] == t.dim(d); --d)
        index[static_cast<size_t>(d)] = 0;
    }
  }

  std::deque<std::string> memory_;
};

}  // namespace

std::vector<NamedValue> named_values(const Graph& graph, const AliasAnalysis& alias) {
  std::vector<NamedValue> out;
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    if (has_value(graph, graph.outputs()[i])) out.push_back(named_output(graph, i));
  const std::vector<bool> written = written_inputs(graph, alias);
  for (size_t i = 0; i < written.size(); ++i)
    if (written[i]) out.push_back(named_input(graph, graph.inputs()[i].value));
  return out;
}

std::vector<NamedValue> numbers_of(const Graph& graph) {
  std::vector<NamedValue> out;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Output& output = graph.outputs()[i];
    if (!has_value(graph, output)) continue;
    if (output.kind == OutputKind::loss ||
        (output.kind == OutputKind::other && is_floating_number(graph.type(output.value))))
      out.push_back(named_output(graph, i));
  }
  return out;
}

Result<NamedValue> find_named_value(const Graph& graph, std::string_view name) {
  if (name.starts_with("mutated.")) {
    ValueId input = find_input(graph, name.substr(8));
    if (input && graph.type(input).kind == TypeKind::tensor) return named_input(graph, input);
  } else if (auto i = find_output(graph, name)) {
    if (has_value(graph, graph.outputs()[*i])) {
      NamedValue out = named_output(graph, *i);
      out.name = name;
      return out;
    }
    return Error{ErrorKind::unreadable, "output " + std::to_string(*i) + " of the graph has no value", {}, {}};
  }
  std::string hint = nearest_name(graph, name).hint();
  if (name == "loss" && !graph.outputs().empty())
    hint = "no output alone is marked as it; the first by its number is out0";
  else if (find_input(graph, name)) hint = "this is an input: is this the file for --inputs?";
  return Error{ErrorKind::unreadable, "the graph has no output `" + std::string(name) + "`", {}, hint};
}

Result<OutputFile> stage_outputs(const std::string& path, const Graph& graph, const AliasAnalysis& alias,
                                 const RunValues& values) {
  Copies copies;
  std::vector<TensorToWrite> list;
  for (const NamedValue& named : named_values(graph, alias))
    list.push_back(graph.type(named.value).kind == TypeKind::tensor ? copies.of(named, values.tensor(named.value))
                                                                    : copies.of(named, values.number(named.value)));
  return stage_tensors(path, list, {.make_folders = true});
}

namespace {

Result<OutputFile> stage_these(const std::string& path, const Graph& graph, const InputSet& inputs,
                               std::span<const size_t> which, const RunState* state = nullptr) {
  Copies copies;
  std::vector<TensorToWrite> list;
  WriteOptions options{.metadata = {}, .make_folders = true};
  for (size_t i : which) {
    const Input& input = graph.inputs()[i];
    const TypeKind kind = graph.type(input.value).kind;
    const bool is_number = kind == TypeKind::integer || kind == TypeKind::floating || kind == TypeKind::boolean;
    const NamedValue named{std::string(graph.name(input.value)), {}, input.value};
    if (!inputs.tensors[i].is_none()) list.push_back(copies.of(named, inputs.tensors[i]));
    else if (is_number && graph.is_used(input.value)) list.push_back(copies.of(named, inputs.scalars[i]));
    else continue;
    if (input.fqn) options.metadata.emplace_back("fqn." + named.name, graph.pool().strings.str(input.fqn));
  }
  if (state != nullptr) add_run_state(graph, *state, &list, &options);
  return stage_tensors(path, list, options);
}

}  // namespace

Result<OutputFile> stage_inputs(const std::string& path, const Graph& graph, const InputSet& inputs) {
  std::vector<size_t> all(graph.inputs().size());
  std::iota(all.begin(), all.end(), size_t{0});
  return stage_these(path, graph, inputs, all);
}

std::vector<size_t> state_inputs(const Graph& graph, const AliasAnalysis& alias) {
  std::vector<size_t> out;
  const std::vector<bool> written = written_inputs(graph, alias);
  for (size_t i = 0; i < written.size(); ++i) {
    const InputKind kind = graph.inputs()[i].kind;
    if (written[i] || kind == InputKind::parameter || kind == InputKind::buffer || kind == InputKind::optimizer_state)
      out.push_back(i);
  }
  return out;
}

Result<OutputFile> stage_state(const std::string& path, const Graph& graph, const AliasAnalysis& alias,
                               const InputSet& inputs, const RunState& state) {
  return stage_these(path, graph, inputs, state_inputs(graph, alias), &state);
}

}  // namespace sg
