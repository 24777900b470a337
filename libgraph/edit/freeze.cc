#include "libgraph/edit/freeze.h"

#include "libgraph/facts/node_parts.h"
#include "libgraph/op.h"
#include "libgraph/story/source_text.h"

namespace sg {
namespace {

constexpr std::string_view kFrozen = "frozen.";           // the symbols it defines followed from its op
constexpr std::string_view kFrozenSaid = "frozen_said.";  // it stated explicitly which symbols it defines

// The node whose part decides whether n is frozen: a wait follows its collective.
NodeId decider(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  const Node& node = graph.node(n);
  if (op == nullptr || !op->has(kWait) || node.args.empty() || !node.args[0].is(ArgKind::value)) return n;
  NodeId waited_for = graph.value(node.args[0].as_value()).def;
  return waited_for ? waited_for : n;
}

void freeze_node(const Program& program, Graph* graph, NodeId n) {
  NodeMeta meta = graph->meta(n);
  bool said = meta.binds.has_value();
  if (!said) {
    meta.binds = default_binds(program, *graph, n);
    graph->set_meta(n, std::move(meta));
  }
  graph->set_op(n, graph->pool().op(std::string(said ? kFrozenSaid : kFrozen) + std::string(graph->op_name(n))));
}

void freeze_bodies(Program* program, const Graph& graph, NodeId n) {
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (!a.is(ArgKind::graph)) return;
      Graph& body = program->nested[a.as_graph().index]->graph;
      if (body.first() && body.op_name(body.first()).starts_with("frozen")) return;  // frozen by another call
      for (NodeId inner : body.nodes()) {
        freeze_bodies(program, body, inner);
        freeze_node(*program, &body, inner);
      }
    });
}

void thaw_graph(Graph* graph) {
  for (NodeId n : graph->nodes()) {
    std::string name(graph->op_name(n));
    bool said = name.starts_with(kFrozenSaid);
    if (!said && !name.starts_with(kFrozen)) continue;
    graph->set_op(n, graph->pool().op(name.substr((said ? kFrozenSaid : kFrozen).size())));
    if (said) continue;
    NodeMeta meta = graph->meta(n);
    meta.binds.reset();
    graph->set_meta(n, std::move(meta));
  }
}

}  // namespace

std::vector<StepPart> step_parts(const Job& job) {
  std::vector<StepPart> out;
  NodeParts parts = node_parts(job);
  out.resize(parts.size());
  for (const auto& program : job.programs) {
    const Graph& graph = program->graph;
    for (NodeId n : graph.nodes()) {
      StepPart& part = out[parts.at(graph.node(n).label)];
      if (!part.name.empty()) continue;
      part.name = "%" + std::string(graph.label(n));
      part.source = source_of(graph, n);
    }
  }
  return out;
}

void freeze_all_but(Job* job, size_t begin, size_t end) {
  NodeParts parts = node_parts(*job);
  for (const auto& program : job->programs) {
    Graph& graph = program->graph;
    std::vector<NodeId> frozen;
    for (NodeId n : graph.nodes()) {
      size_t part = parts.at(graph.node(decider(graph, n)).label);
      if (part < begin || part >= end) frozen.push_back(n);
    }
    for (NodeId n : frozen) freeze_bodies(program.get(), graph, n);
    for (NodeId n : frozen) freeze_node(*program, &graph, n);
  }
}

void thaw(Job* job) {
  for (const auto& program : job->programs) {
    thaw_graph(&program->graph);
    for (const auto& body : program->nested) thaw_graph(&body->graph);
  }
}

}  // namespace sg
