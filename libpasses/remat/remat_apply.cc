#include "libpasses/remat/remat_apply.h"

#include "libgraph/edit/rewrite.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

class Applier {
 public:
  Applier(const RematModel& model, Graph* graph) : model_(model), graph_(*graph), copy_(graph->node_id_limit()) {}

  void run(const RematOutcome& outcome) {
    size_t next = 0;
    for (uint32_t b = 0; b < model_.size(); ++b) {
      for (; next < outcome.copies.size() && outcome.copies[next].before == b; ++next)
        copy(model_.node(outcome.copies[next].node), model_.node(b));
      if (next > 0 && !model_.is_forward(b)) redirect(model_.node(b));
    }
    for (size_t i = outcome.gone.size(); i-- > 0;) graph_.erase(model_.node(outcome.gone[i]));
  }

 private:
  ValueId mapped(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    if (!def || def.index >= copy_.size() || !copy_[def.index]) return v;
    return graph_.node(copy_[def.index]).result(graph_.value(v).index);
  }

  void copy(NodeId n, NodeId before) {
    const NodeId made = copy_node(
        &graph_, n, before, [&](ValueId v) { return mapped(v); }, "_recomputed");
    graph_.set_phase(made, graph_.node(before).phase);
    graph_.set_forward(made, n);
    NodeMeta meta = graph_.meta(made);
    meta.recompute = Recompute::none;
    const StrId original = graph_.meta(n).copy.kind == CopyKind::none ? graph_.node(n).label : graph_.meta(n).copy.of;
    meta.copy = {CopyKind::remat, original};
    graph_.set_meta(made, std::move(meta));
    copy_[n.index] = made;
  }

  void redirect(NodeId b) {
    std::vector<ValueId> operands;
    for_operands(graph_, b, [&](ValueId v) { operands.push_back(v); });
    for (ValueId v : operands)
      if (const ValueId m = mapped(v); m != v) graph_.replace_uses_in(b, v, m);
  }

  const RematModel& model_;
  Graph& graph_;
  std::vector<NodeId> copy_;  // by original: its latest copy
};

}  // namespace

void apply_remat(const RematModel& model, const RematOutcome& outcome, Graph* graph) {
  Applier(model, graph).run(outcome);
}

size_t count_saved(const Graph& graph) {
  size_t out = 0;
  for (NodeId n : graph.nodes()) {
    if (graph.node(n).phase != Phase::forward) continue;
    bool is_saved = false;
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
      graph.for_each_use(graph.node(n).result(i),
                         [&](Use use) { is_saved |= use.user && graph.node(use.user).phase != Phase::forward; });
    out += is_saved;
  }
  return out;
}

}  // namespace sg
