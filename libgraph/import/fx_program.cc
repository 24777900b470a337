// Classifies inputs and outputs, finds the backward nodes, and joins a forward with its backward.
#include <algorithm>
#include <numeric>
#include <set>

#include "libgraph/base/chars.h"
#include "libgraph/base/flat_set.h"
#include "libgraph/import/fx_lower.h"

namespace sg {
namespace {

// "ParamAOTInput(target='layers.0.weight')" with "target": layers.0.weight
std::string_view field_of(std::string_view descriptor, std::string_view key) {
  size_t at = descriptor.find(std::string(key) + "='");
  if (at == std::string_view::npos) return {};
  at += key.size() + 2;
  return descriptor.substr(at, descriptor.find('\'', at) - at);
}

// "GradAOTOutput(grad_of=PlainAOTInput(idx=1))" with "grad_of": PlainAOTInput(idx=1)
std::string_view inner_of(std::string_view descriptor, std::string_view key) {
  size_t at = descriptor.find(std::string(key) + "=");
  if (at == std::string_view::npos || descriptor.empty() || descriptor.back() != ')') return {};
  return descriptor.substr(at + key.size() + 1, descriptor.size() - at - key.size() - 2);
}

// tangents_1: AOTAutograd's name for the gradient of an output.
bool is_tangent_name(std::string_view name) {
  return name.starts_with("tangents_") && name.size() > 9 && std::all_of(name.begin() + 9, name.end(), is_digit);
}

bool is_float_scalar(const Pool& pool, TypeId id) {
  const Type& type = pool.types[id];
  return type.kind == TypeKind::tensor && type.shape.empty() && is_floating(type.dtype);
}

TypeId type_of(const SourceGraph& graph, StrId name) {
  for (const SourceNode& node : graph.nodes)
    if (node.name == name && node.results.types.size() == 1) return node.results.types[0];
  return Pool::kUnknownType;
}

void classify_input(std::string_view descriptor, Pool* pool, SourceInput* input) {
  if (input->input.kind != InputKind::user) return;
  if (descriptor.starts_with("ParamAOTInput(")) {
    input->input.kind = InputKind::parameter;
    input->input.fqn = pool->str(field_of(descriptor, "target"));
  } else if (descriptor.starts_with("BufferAOTInput(")) {
    input->input.kind = InputKind::buffer;
    input->input.fqn = pool->str(field_of(descriptor, "target"));
  } else if (descriptor.starts_with("TangentAOTInput(") ||
             (descriptor.empty() && is_tangent_name(pool->strings[input->name]))) {
    input->input.kind = InputKind::tangent;
  }
}

// What depends on a tangent.
FlatSet<StrId> gradients_of(const SourceGraph& graph) {
  FlatSet<StrId> out;
  for (const SourceInput& input : graph.inputs)
    if (input.input.kind == InputKind::tangent) out.insert(input.name);
  for (const SourceNode& node : graph.nodes)
    if (node.name && std::ranges::any_of(node.refs, [&](const SourceRef& ref) { return out.contains(ref.name); }))
      out.insert(node.name);
  return out;
}

// Whether the inputs are primals_1 to primals_n in this order, and tangents, and results for the tangents come first
// among the outputs. A backward alone may look alike: it takes the primals that it needs and returns gradients of all.
bool is_joint(const SourceGraph& graph, const FlatSet<StrId>& tokens, const Pool& pool) {
  size_t primals = 0, tangents = 0, of_tokens = 0;
  for (const SourceInput& input : graph.inputs) {
    const bool is_primal = pool.strings[input.name] == "primals_" + std::to_string(primals + 1);
    const bool is_tangent = input.input.kind == InputKind::tangent;
    if (!is_primal && !is_tangent && input.input.kind != InputKind::constant) return false;
    primals += is_primal, tangents += is_tangent, of_tokens += tokens.contains(input.name);
  }
  primals -= of_tokens;
  if (primals == 0 || tangents == 0 || graph.outputs.size() <= primals) return false;
  const FlatSet<StrId> gradients = gradients_of(graph);
  size_t results = 0;
  for (size_t i = 0; i < graph.outputs.size() - primals; ++i) {
    const StrId name = graph.outputs[i].value.name;
    if (name && gradients.contains(name)) return false;
    results += name ? 1 : 0;
  }
  return results >= tangents;
}

// Finds the loss: the only scalar among the user's results, if gradients are computed. If there are other results
// (scores, for example), there must also be exactly one scalar tangent.
void mark_loss(SourceGraph* graph, const std::vector<size_t>& plain, const Pool& pool) {
  size_t tangents = 0;
  for (const SourceInput& input : graph->inputs)
    tangents += input.input.kind == InputKind::tangent && is_float_scalar(pool, input.type);
  std::vector<size_t> numbers;
  for (size_t i : plain)
    if (const SourceOutput& output = graph->outputs[i];
        output.value.name && is_float_scalar(pool, type_of(*graph, output.value.name)))
      numbers.push_back(i);
  if (numbers.size() == 1 && (plain.size() == 1 || tangents == 1))
    graph->outputs[numbers[0]].output.kind = OutputKind::loss;
}

// For versions without port descriptors: a joint graph ends with the gradients of its primals, in their order. Tokens
// are primals without; an object that is one is passed through in place of a gradient.
void classify_by_place(SourceGraph* graph, const FlatSet<StrId>& tokens, const Pool& pool) {
  if (!is_joint(*graph, tokens, pool)) return;
  std::vector<StrId> primals;
  for (const SourceInput& input : graph->inputs)
    if (pool.strings[input.name].starts_with("primals_") && !tokens.contains(input.name)) primals.push_back(input.name);
  const size_t begin = graph->outputs.size() - primals.size();
  for (size_t k = 0; k < primals.size(); ++k) {
    SourceOutput& output = graph->outputs[begin + k];
    if (!output.value.name || output.output.kind == OutputKind::opaque) continue;
    output.output.kind = OutputKind::gradient;
    output.of = primals[k];
  }
  std::vector<size_t> plain(begin);
  std::iota(plain.begin(), plain.end(), size_t{0});
  mark_loss(graph, plain, pool);
}

bool are_empty(const std::vector<std::string>& descriptors) {
  return std::all_of(descriptors.begin(), descriptors.end(), [](const std::string& d) { return d.empty(); });
}

}  // namespace

void classify_fx_ports(FxProgram* program, Pool* pool) {
  SourceGraph& graph = program->source.graph;
  std::map<std::string_view, StrId> described;  // inputs by descriptor
  bool has_tangent = false;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const std::string& descriptor = program->input_descriptors[i];
    classify_input(descriptor, pool, &graph.inputs[i]);
    has_tangent = has_tangent || graph.inputs[i].input.kind == InputKind::tangent;
    if (!descriptor.empty()) described.try_emplace(descriptor, graph.inputs[i].name);
  }
  std::set<StrId> opaque;
  for (const SourceInput& input : graph.inputs)
    if (input.input.kind == InputKind::opaque) opaque.insert(input.name);
  std::vector<size_t> plain;
  bool has_gradients = has_tangent;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    SourceOutput& output = graph.outputs[i];
    std::string_view descriptor = program->output_descriptors[i];
    if (descriptor.starts_with("PlainAOTOutput(")) plain.push_back(i);
    has_gradients = has_gradients || descriptor.starts_with("GradAOTOutput(");
    if (!output.value.name) continue;
    std::string_view key = descriptor.starts_with("GradAOTOutput(")            ? "grad_of"
                           : descriptor.starts_with("InputMutationAOTOutput(") ? "mutated_input"
                                                                               : "";
    if (opaque.count(output.value.name) != 0) output.output.kind = OutputKind::opaque;
    if (key.empty()) continue;
    output.output.kind = key == "grad_of" ? OutputKind::gradient : OutputKind::buffer;
    auto of = described.find(inner_of(descriptor, key));
    output.of = of != described.end() ? of->second : pool->str(inner_of(descriptor, key));
  }
  if (are_empty(program->input_descriptors) && are_empty(program->output_descriptors))
    return classify_by_place(&graph, program->tokens, *pool);
  if (has_gradients) mark_loss(&graph, plain, *pool);
}

void spread_backward(SourceGraph* graph) {
  FlatSet<StrId> backward, forward_use;
  for (const SourceInput& input : graph->inputs)
    if (input.input.kind == InputKind::tangent) backward.insert(input.name);
  bool has_marks = std::any_of(graph->nodes.begin(), graph->nodes.end(),
                               [](const SourceNode& n) { return n.phase == Phase::backward; });
  for (SourceNode& node : graph->nodes) {
    bool is_told = has_marks && node.source;  // older versions of PyTorch mark none
    for (const SourceRef& ref : node.refs)
      if (!is_told && backward.contains(ref.name)) node.phase = Phase::backward;
    if (node.phase == Phase::backward && node.name) backward.insert(node.name);
  }
  for (const SourceOutput& output : graph->outputs)
    if (output.value.name) forward_use.insert(output.value.name);
  FlatSet<StrId> backward_use;
  for (size_t i = graph->nodes.size(); i-- > 0;) {
    SourceNode& node = graph->nodes[i];
    if (!node.source && node.name && !forward_use.contains(node.name) && backward_use.contains(node.name))
      node.phase = Phase::backward;
    for (const SourceRef& ref : node.refs)
      (node.phase == Phase::backward ? backward_use : forward_use).insert(ref.name);
  }
}

// --- join ---

namespace {

class Joiner {
 public:
  Joiner(FxProgram forward, FxProgram backward, Pool* pool)
      : out_(std::move(forward)), in_(std::move(backward)), pool_(pool) {}

  Result<FxProgram> join() {
    SourceGraph& forward = out_.source.graph;
    SourceGraph& backward = in_.source.graph;
    for (const SourceInput& input : forward.inputs) taken_.insert(input.name);
    for (const SourceNode& node : forward.nodes) taken_.insert(node.name);
    SG_TRY(match_inputs());
    take_saved();
    append_nested();
    for (SourceNode& node : backward.nodes) {
      if (node.name) node.name = fresh(node.name);
      for (SourceRef& ref : node.refs) ref.name = renamed(ref.name);
      for (Arg& arg : node.args)
        arg.walk_mutable([&](Arg& a) {
          if (!a.is(ArgKind::graph)) return;
          StrId key = a.key();
          a = Arg::graph(NestedId(a.as_graph().index + nested_base_));
          a.set_key(key);
        });
      node.phase = Phase::backward;
      forward.nodes.push_back(std::move(node));
    }
    for (size_t i = 0; i < backward.outputs.size(); ++i) {
      if (backward.outputs[i].value.name) backward.outputs[i].value.name = renamed(backward.outputs[i].value.name);
      forward.outputs.push_back(std::move(backward.outputs[i]));
      out_.output_descriptors.push_back(std::move(in_.output_descriptors[i]));
    }
    out_.foreign_calls += in_.foreign_calls;
    out_.operator_calls += in_.operator_calls;
    return std::move(out_);
  }

 private:
  bool is_tangent(size_t i) const {
    const SourceInput& input = in_.source.graph.inputs[i];
    const std::string& descriptor = in_.input_descriptors[i];
    return descriptor.starts_with("TangentAOTInput(") ||
           (descriptor.empty() && is_tangent_name(pool_->strings[input.name]));
  }

  // Saved values are the last outputs of the forward, each once; the backward takes them by name. If the names do not
  // match, positions decide.
  Status match_inputs() {
    const SourceGraph& forward = out_.source.graph;
    SourceGraph& backward = in_.source.graph;
    FlatSet<StrId> returned;
    for (const SourceOutput& output : forward.outputs)
      if (output.value.name) returned.insert(output.value.name);
    std::vector<size_t> wanted;
    for (size_t i = 0; i < backward.inputs.size(); ++i) {
      const SourceInput& input = backward.inputs[i];
      const bool is_own_object = input.input.kind == InputKind::opaque && !returned.contains(input.name);
      if (!is_tangent(i) && input.input.kind != InputKind::constant && !is_own_object) wanted.push_back(i);
    }
    if (wanted.size() > forward.outputs.size())
      return error("the backward takes " + std::to_string(wanted.size()) +
                   " values besides tangents, the forward returns only " + std::to_string(forward.outputs.size()));
    saved_begin_ = forward.outputs.size() - wanted.size();
    std::set<StrId> saved;
    for (size_t i = saved_begin_; i < forward.outputs.size(); ++i)
      if (forward.outputs[i].value.name) saved.insert(forward.outputs[i].value.name);
    bool by_name =
        std::all_of(wanted.begin(), wanted.end(), [&](size_t i) { return saved.count(backward.inputs[i].name) != 0; });
    for (size_t k = 0; k < wanted.size(); ++k) {
      const SourceInput& input = backward.inputs[wanted[k]];
      StrId value = by_name ? input.name : forward.outputs[saved_begin_ + k].value.name;
      if (!value)
        return error("the forward returns nothing for `" + std::string(pool_->strings[input.name]) +
                     "`, which the backward takes");
      SG_TRY(check_types(input, value));
      renamed_.try_emplace(input.name, value);
    }
    for (size_t i = 0; i < backward.inputs.size(); ++i) {
      if (renamed_.contains(backward.inputs[i].name)) continue;
      SourceInput input = std::move(backward.inputs[i]);
      input.name = fresh(input.name);
      out_.source.graph.inputs.push_back(std::move(input));
      out_.input_descriptors.push_back(std::move(in_.input_descriptors[i]));
    }
    return ok_status();
  }

  // Values matched by position must have the types that the backward declares.
  Status check_types(const SourceInput& input, StrId value) {
    if (type_by_name_.empty()) {
      for (const SourceInput& i : out_.source.graph.inputs) type_by_name_.emplace(i.name, i.type);
      for (const SourceNode& n : out_.source.graph.nodes)
        if (n.results.types.size() == 1) type_by_name_.emplace(n.name, n.results.types[0]);
    }
    auto known = type_by_name_.find(value);
    if (known == type_by_name_.end() || known->second == Pool::kUnknownType || input.type == Pool::kUnknownType)
      return ok_status();
    const Type &a = pool_->types[known->second], &b = pool_->types[input.type];
    if (a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape) return ok_status();
    return error("`" + std::string(pool_->strings[value]) + "` of the forward and `" +
                 std::string(pool_->strings[input.name]) +
                 "` of the backward have different types: these two are not of one compilation");
  }

  void take_saved() {
    out_.source.graph.outputs.resize(saved_begin_);
    out_.output_descriptors.resize(saved_begin_);
  }

  void append_nested() {
    nested_base_ = static_cast<uint32_t>(out_.source.nested.size());
    std::set<StrId> names;
    for (const SourceNested& n : out_.source.nested) names.insert(n.name);
    for (SourceNested& n : in_.source.nested) {
      std::string base(pool_->strings[n.name]);
      for (uint32_t k = 1; !names.insert(n.name).second; ++k) n.name = pool_->str(base + "_" + std::to_string(k));
      for (SourceNode& node : n.graph.nodes)
        for (Arg& arg : node.args)
          arg.walk_mutable([&](Arg& a) {
            StrId key = a.key();
            if (a.is(ArgKind::graph)) a = Arg::graph(NestedId(a.as_graph().index + nested_base_)).set_key(key);
          });
      out_.source.nested.push_back(std::move(n));
    }
  }

  // A name for a backward value: its own, with a suffix if the forward has the same name (recomputed values).
  StrId fresh(StrId name) {
    StrId out = name;
    std::string base(pool_->strings[name]);
    for (uint32_t k = 1; !taken_.insert(out); ++k)
      out = pool_->str(base + "_again" + (k == 1 ? "" : std::to_string(k)));
    if (out != name) renamed_.try_emplace(name, out);
    return out;
  }
  StrId renamed(StrId name) const {
    const StrId* to = renamed_.find(name);
    return to ? *to : name;
  }

  Error error(std::string message) const {
    SourcePlace place;
    if (!in_.source.graph.inputs.empty()) place = in_.source.graph.inputs[0].place;
    return {ErrorKind::unreadable, std::move(message), in_.source.where ? in_.source.where(place) : Location(), {}};
  }

  FxProgram out_, in_;
  Pool* pool_;
  FlatSet<StrId> taken_;
  FlatMap<StrId, StrId> renamed_;
  std::map<StrId, TypeId> type_by_name_;
  size_t saved_begin_ = 0;
  uint32_t nested_base_ = 0;
};

}  // namespace

Result<FxProgram> join_fx_programs(FxProgram forward, FxProgram backward, Pool* pool) {
  return Joiner(std::move(forward), std::move(backward), pool).join();
}

}  // namespace sg
