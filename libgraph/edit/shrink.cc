#include "libgraph/edit/shrink.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "libgraph/edit/shrink_parts.h"
#include "libgraph/op.h"

namespace sg {
namespace {

void cut(Graph* graph, NodeId n) {
  std::vector<std::pair<ValueId, std::string>> inputs;
  for (uint32_t r = 0; r < graph->node(n).result_count; ++r) {
    ValueId v = graph->node(n).result(r);
    if (!graph->is_used(v)) continue;
    std::string name(graph->name(v));
    ValueId input = graph->add_input(graph->pool().strings[graph->fresh_name(name)], graph->value(v).type, {});
    graph->replace_uses(v, input);
    inputs.emplace_back(input, name);
  }
  graph->erase(n);
  for (const auto& [input, name] : inputs) graph->rename(input, name);
}

void drop_unread_inputs(Graph* graph) {
  std::unordered_set<uint32_t> named;  // referenced by outputs
  for (const Output& output : graph->outputs())
    if (output.of) named.insert(output.of.index);
  for (size_t i = graph->inputs().size(); i-- > 0;) {
    ValueId v = graph->inputs()[i].value;
    if (!graph->is_used(v) && !named.contains(v.index)) graph->remove_input(i);
  }
}

// Data-dependent symbols that no remaining node defines become sizes of inputs.
void free_symbols(Program* program) {
  std::unordered_set<StrId, IdHash> bound;
  auto collect = [&](const Graph& graph) {
    for (NodeId n : graph.nodes()) {
      const NodeMeta& meta = graph.meta(n);
      for (StrId s : meta.binds ? *meta.binds : default_binds(*program, graph, n)) bound.insert(s);
    }
  };
  collect(program->graph);
  for (const auto& nested : program->nested) collect(nested->graph);
  for (Symbol& symbol : program->symbols)
    if (symbol.kind == SymbolKind::data && !bound.contains(symbol.name)) symbol.kind = SymbolKind::input;
}

// From last to first, so that the readers of a result go before its maker.
void remove_nodes(Graph* graph, size_t program, const ShrinkParts& parts, size_t begin, size_t end) {
  for (NodeId n = graph->last(), before; !n.is_none(); n = before) {
    before = graph->previous(n);
    size_t part = parts.of(program, n);
    if (part >= begin && part < end) cut(graph, n);
  }
}

// The same graph without outputs [begin, end): a graph cannot lose outputs, so it is rebuilt.
Graph without_outputs(const Graph& graph, size_t begin, size_t end) {
  Graph out(&graph.pool());
  std::vector<ValueId> value_of(graph.value_id_limit());
  std::vector<NodeId> node_of(graph.node_id_limit());
  auto moved = [&](ValueId v) { return v.is_none() ? v : value_of[v.index]; };
  for (const Input& input : graph.inputs())
    value_of[input.value.index] = out.add_input(graph.name(input.value), graph.value(input.value).type, input);
  for (NodeId n : graph.nodes()) {
    Node node = graph.node(n);
    std::vector<StrId> names;
    std::vector<TypeId> types;
    for (uint32_t r = 0; r < node.result_count; ++r) {
      names.push_back(graph.value(node.result(r)).name);
      types.push_back(graph.value(node.result(r)).type);
    }
    for (Arg& arg : node.args)
      arg.walk_mutable([&](Arg& a) {
        if (a.is(ArgKind::value)) a.set_value(moved(a.as_value()));
      });
    node.forward = node.forward && graph.alive(node.forward) ? node_of[node.forward.index] : NodeId();
    node_of[n.index] = out.append_exact(std::move(node), names, types);
    for (uint32_t r = 0; r < names.size(); ++r)
      value_of[graph.node(n).result(r).index] = out.node(node_of[n.index]).result(r);
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    if (i >= begin && i < end) continue;
    Output output = graph.outputs()[i];
    output.value = moved(output.value), output.of = moved(output.of);
    out.add_output(std::move(output));
  }
  return out;
}

// Calls fn for every argument that is a body.
template <class Fn>
void for_each_body(const Graph& graph, const Fn& fn) {
  for (NodeId n : graph.nodes())
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph)) fn(n, a.as_graph());
      });
}

// Drops bodies that nothing calls and renumbers the rest.
void drop_uncalled_bodies(Program* program) {
  std::vector<uint32_t> number(program->nested.size(), NestedId::kNoneIndex);
  std::vector<const Graph*> open{&program->graph};
  while (!open.empty()) {
    const Graph* graph = open.back();
    open.pop_back();
    for_each_body(*graph, [&](NodeId, NestedId body) {
      if (std::exchange(number[body.index], 0) != 0) open.push_back(&program->nested[body.index]->graph);
    });
  }
  uint32_t next = 0;
  std::vector<std::unique_ptr<Nested>> kept;
  for (size_t i = 0; i < number.size(); ++i) {
    if (number[i] != 0) continue;
    number[i] = next++;
    kept.push_back(std::move(program->nested[i]));
  }
  program->nested = std::move(kept);
  if (next == number.size()) return;
  auto renumber = [&](Graph* graph) {
    std::vector<NodeId> callers;
    for_each_body(*graph, [&](NodeId n, NestedId) { callers.push_back(n); });
    callers.erase(std::unique(callers.begin(), callers.end()), callers.end());
    for (NodeId n : callers) {
      std::vector<Arg> args = graph->node(n).args;
      for (Arg& arg : args)
        arg.walk_mutable([&](Arg& a) {
          if (!a.is(ArgKind::graph)) return;
          StrId key = a.key();
          a = Arg::graph(NestedId(number[a.as_graph().index]));
          a.set_key(key);
        });
      graph->set_args(n, std::move(args));
    }
  };
  renumber(&program->graph);
  for (auto& nested : program->nested) renumber(&nested->graph);
}

void remove_symbols(Program* program, size_t begin, size_t end) {
  SymbolList kept;
  for (size_t i = 0; i < program->symbols.size(); ++i)
    if (i < begin || i >= end) kept.push_back(program->symbols[i]);
  program->symbols = std::move(kept);
}

void remove_guards(Program* program, size_t begin, size_t end) {
  auto first = program->guards.begin();
  program->guards.erase(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end));
}

void forget_places(Job* job) {
  job->for_each_graph([](Graph& graph) {
    for (NodeId n : graph.nodes()) {
      graph.set_module(n, StrId());
      graph.set_source(n, SourceId());
      graph.set_forward(n, NodeId());
      graph.set_phase(n, Phase::forward);
    }
  });
}

// Clears all metadata but the random stream, which a node that draws must have.
void forget_metadata(Job* job) {
  job->for_each_graph([](Graph& graph) {
    for (NodeId n : graph.nodes()) {
      NodeMeta plain;
      plain.random = graph.meta(n).random;
      plain.binds = graph.meta(n).binds;
      graph.set_meta(n, std::move(plain));
    }
  });
}

void forget_notes(Job* job) {
  job->producer.clear();
  job->note.clear();
  job->extra.clear();
  job->provenance.clear();
  job->meshes.clear();
}

void forget_ports(Job* job) {
  for (auto& program : job->programs) {
    Graph& graph = program->graph;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      Input& input = graph.mutable_input(i);
      input.kind = input.kind == InputKind::opaque ? input.kind : InputKind::user;
      input.fqn = StrId(), input.sharding = {}, input.digest = StrId(), input.extra.clear();
    }
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      Output& output = graph.mutable_output(i);
      output.kind =
          output.kind == OutputKind::none || output.kind == OutputKind::opaque ? output.kind : OutputKind::other;
      output.of = ValueId(), output.of_name = StrId(), output.sharding = {}, output.extra.clear();
    }
    drop_unread_inputs(&graph);
  }
}

size_t count_in(const Program& program, Part part) {
  switch (part) {
    case Part::node: return program.graph.node_count();
    case Part::output: return program.graph.outputs().size();
    case Part::guard: return program.guards.size();
    case Part::symbol: return program.symbols.size();
  }
  return 0;
}

}  // namespace

size_t count_parts(const Job& job, Part part, PartScope scope) {
  if (part == Part::node) return ShrinkParts(job, scope).count();
  size_t most = 0, all = 0;
  for (const auto& program : job.programs) {
    const size_t count = count_in(*program, part);
    most = std::max(most, count);
    all += count;
  }
  return scope == PartScope::all_ranks ? most : all;
}

Job without_parts(const Job& job, Part part, PartScope scope, size_t begin, size_t end) {
  Job out(job);
  const std::optional<ShrinkParts> nodes = part == Part::node ? std::optional(ShrinkParts(job, scope)) : std::nullopt;
  size_t before = 0;  // parts of the programs in front
  for (size_t p = 0; p < out.programs.size(); ++p) {
    Program* program = out.programs[p].get();
    const size_t count = count_in(*program, part);
    auto local = [&](size_t at) { return std::clamp(at, before, before + count) - before; };
    const size_t first = local(begin), last = local(end);
    if (scope == PartScope::each_rank) before += count;
    switch (part) {
      case Part::node: remove_nodes(&program->graph, p, *nodes, begin, end); break;
      case Part::output: program->graph = without_outputs(program->graph, first, last); break;
      case Part::guard: remove_guards(program, first, last); break;
      case Part::symbol: remove_symbols(program, first, last); break;
    }
    drop_unread_inputs(&program->graph);
    drop_uncalled_bodies(program);
    free_symbols(program);
  }
  return out;
}

std::vector<Simplification> simplifications() {
  return {{"where nodes came from", forget_places},
          {"metadata of nodes", forget_metadata},
          {"what inputs and outputs are", forget_ports},
          {"notes and provenance", forget_notes},
          {"groups that nobody names", drop_unused_groups}};
}

}  // namespace sg
