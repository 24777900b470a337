#include "libgraph/facts/recompute_tags.h"

#include <algorithm>

namespace sg {
namespace {

bool has_carried_out(const Job& job) {
  for (const Provenance& entry : job.provenance) {
    auto is_tag_only = [&](const KeyValue& option) { return job.pool->strings[option.key] == "tag-only"; };
    if (job.pool->strings[entry.tool] == "sg-remat" && std::ranges::none_of(entry.options, is_tag_only)) return true;
  }
  return false;
}

// A copy made by Stepgraph, or one named as TorchTitan and PyTorch name theirs.
bool is_copy(const Graph& graph, NodeId n) {
  return graph.meta(n).copy.kind == CopyKind::remat ||
         (graph.node(n).phase != Phase::forward && graph.label(n).ends_with("_recomputed"));
}

bool is_kept(const Graph& graph, NodeId n) {
  bool out = false;
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
    graph.for_each_use(graph.node(n).result(i),
                       [&](Use use) { out |= use.user && graph.node(use.user).phase == Phase::backward; });
  return out;
}

}  // namespace

bool is_recomputed(Recompute tag) { return tag == Recompute::prefer_recompute || tag == Recompute::must_recompute; }

bool does_forward_work(const Graph& graph, NodeId n) {
  return graph.node(n).phase == Phase::forward || graph.meta(n).copy.kind == CopyKind::remat;
}

size_t unapplied_recompute_tags(const Job& job) {
  if (has_carried_out(job)) return 0;
  size_t out = 0;
  for (const auto& program : job.programs)
    for (NodeId n : program->graph.nodes()) {
      if (is_copy(program->graph, n)) return 0;
      out += program->graph.node(n).phase == Phase::forward && is_recomputed(program->graph.meta(n).recompute) &&
             is_kept(program->graph, n);
    }
  return out;
}

}  // namespace sg
