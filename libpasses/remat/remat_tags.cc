#include "libpasses/remat/remat_tags.h"

#include <cstdint>
#include <string_view>

#include "libgraph/facts/collective_roles.h"
#include "libgraph/facts/recompute_tags.h"
#include "libgraph/op.h"
#include "libgraph/op_pattern.h"
#include "libpasses/layers.h"

namespace sg {
namespace {

// Fused attention: its result is small relative to its cost.
bool is_fused_attention(const OpInfo& op) { return op.has(kContraction) && op.has(kRandomIfDropout); }

}  // namespace

bool is_kept_by_full(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op == nullptr || is_fused_attention(*op);
}

// Usually costs more to recompute than its memory is worth. PyTorch's own list, which lacks the attention kernel for
// CPUs.
bool is_kept_by_default(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr) return true;
  const std::string_view name = op->name;
  if (op_is_called(name, "_scaled_dot_product_flash_attention_for_cpu")) return false;
  if (op->has(kCollective)) return name.find("all_gather") == std::string_view::npos;
  if (op->has(kContraction) || op->has(kHigherOrder)) return !op_is_called(name, "_grouped_mm");
  for (std::string_view other : {"topk", "sort", "argsort", "max", "linear"})
    if (op_is_called(name, other) && graph.node(n).result_count > (other == "max" ? 1 : 0)) return true;
  return false;
}

namespace {

class Tagger {
 public:
  Tagger(Program* program, RematPolicy policy, const RematSelectors& selectors, const SizeValues& sizes,
         Recompute crossing)
      : program_(*program),
        graph_(program->graph),
        policy_(policy),
        selectors_(selectors),
        sizes_(sizes),
        crossing_(crossing) {}

  RematTags run() {
    if (is_rule()) find_earlier_run();
    find_layers();
    for (NodeId n : graph_.nodes())
      if (graph_.node(n).phase == Phase::forward) set(n, tag_of(n));
    RematTags out{keep_what_crosses_layers(), head_, {}};
    if (head_ && !has_earlier_run_) out.unshards = leave_unshards_of_head();
    return out;
  }

 private:
  void set(NodeId n, Recompute tag) {
    if (graph_.meta(n).recompute == tag) return;
    NodeMeta meta = graph_.meta(n);
    meta.recompute = tag;
    graph_.set_meta(n, std::move(meta));
  }

  // Otherwise there is a target, and a search decides by measured peaks instead of rules of thumb.
  bool is_rule() const { return crossing_ == Recompute::must_save; }

  bool is_copy(NodeId n) const { return graph_.meta(n).copy.kind == CopyKind::remat; }

  // An earlier run leaves tags and copies. Copies alone are of a capture: what its checkpoints draw again.
  void find_earlier_run() {
    bool has_tags = false, has_copies = false;
    for (NodeId n : graph_.nodes()) {
      has_tags |= graph_.meta(n).recompute != Recompute::none;
      has_copies |= is_copy(n);
    }
    has_earlier_run_ = has_tags && has_copies;
  }

  void find_layers() {
    const Layers layers(graph_);
    layer_.assign(graph_.node_id_limit(), -1);
    for (NodeId n : graph_.nodes()) {
      if (!does_forward_work(graph_, n)) continue;
      layer_[n.index] = layers.of(graph_, n);
      if (graph_.node(n).phase == Phase::forward && layer_[n.index] >= 0) last_layered_ = n;
    }
    if (last_layered_ && is_rule()) find_head();
    for (NodeId n = last_layered_ ? graph_.next(last_layered_) : NodeId(); n; n = graph_.next(n))
      if (layer_[n.index] < 0 && graph_.node(n).phase == Phase::forward)
        layer_[n.index] = INT32_MAX;  // after all layers
  }

  // The first product after the last layer, else the first node after that layer.
  void find_head() {
    for (NodeId n = graph_.next(last_layered_); n; n = graph_.next(n)) {
      if (graph_.node(n).phase != Phase::forward) continue;
      if (head_.is_none()) head_ = n;
      const OpInfo* op = graph_.op_info(n);
      if (op == nullptr || !op->has(kContraction)) continue;
      head_ = n;
      return;
    }
  }

  Recompute tag_of(NodeId n) {
    const bool was_head = has_earlier_run_ && graph_.meta(n).recompute == Recompute::none;
    if (was_head || (head_ && is_in_head(n))) return Recompute::none;
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || op->has(kSize) || op->has(kHostSync)) return Recompute::must_save;
    if (selectors_.save.matches(graph_, n, sizes_)) return Recompute::must_save;
    if (has_earlier_run_ && graph_.meta(n).recompute == Recompute::prefer_save) return Recompute::prefer_save;
    if (op->has(kWait)) return tag_of_launch(n);
    if (selectors_.recompute.matches(graph_, n, sizes_)) return Recompute::must_recompute;
    if (policy_ == RematPolicy::none) return Recompute::must_save;
    if (policy_ == RematPolicy::all) return Recompute::must_recompute;
    if (policy_ == RematPolicy::full)
      return is_kept_by_full(graph_, n) ? Recompute::must_save : Recompute::must_recompute;
    return is_kept_by_default(graph_, n) ? Recompute::must_save : Recompute::prefer_recompute;
  }

  // The tag of a wait's launch, which the wait shares.
  Recompute tag_of_launch(NodeId wait) const {
    for (const Arg& arg : graph_.node(wait).args)
      if (arg.is(ArgKind::value))
        if (NodeId launch = graph_.value(arg.as_value()).def) return graph_.meta(launch).recompute;
    return Recompute::must_save;
  }

  // Whether it is recomputed: a forward node with such a tag, or a copy made by an earlier run.
  bool is_recomputed_node(NodeId n) const {
    return graph_.node(n).phase == Phase::forward ? is_recomputed(graph_.meta(n).recompute) : is_copy(n);
  }

  // Keeps recomputation of one layer from starting in another.
  std::vector<NodeId> keep_what_crosses_layers() {
    std::vector<NodeId> out;
    for (NodeId n : graph_.nodes()) {
      if (graph_.node(n).phase != Phase::forward || !is_recomputed(graph_.meta(n).recompute)) continue;
      bool crosses = false;
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
        graph_.for_each_use(graph_.node(n).result(i), [&](Use use) {
          crosses |= use.user && is_recomputed_node(use.user) && layer_[use.user.index] > layer_[n.index];
        });
      if (crosses) set(n, crossing_), out.push_back(n);
    }
    return out;
  }

  bool is_in_head(NodeId n) const { return n == head_ || graph_.before(head_, n); }

  // Gathers of parameters before the head, with their waits, casts and views, that nothing else in the forward reads.
  std::vector<NodeId> leave_unshards_of_head() {
    std::vector<NodeId> out;
    const CollectiveRoles roles(program_, graph_);
    for (const CollectiveChain& chain : roles.chains()) {
      if (chain.role != CollectiveRole::unshard || graph_.node(chain.launch).phase != Phase::forward) continue;
      if (is_in_head(chain.launch) || selectors_.recompute.matches(graph_, chain.launch, sizes_)) continue;
      std::vector<NodeId> nodes = {chain.launch};
      if (!leads_to_head(&nodes)) continue;
      for (NodeId n : nodes)
        if (is_recomputed(graph_.meta(n).recompute)) set(n, Recompute::none), out.push_back(n);
    }
    return out;
  }

  // Adds what is derived from the first of `nodes`, up to the head; false if something else uses it.
  bool leads_to_head(std::vector<NodeId>* nodes) const {
    for (size_t i = 0; i < nodes->size(); ++i) {
      bool is_read = false, leads = true;
      for (uint32_t r = 0; r < graph_.node((*nodes)[i]).result_count; ++r)
        graph_.for_each_use(graph_.node((*nodes)[i]).result(r), [&](Use use) {
          if (use.user.is_none() || graph_.node(use.user).phase != Phase::forward) return;
          is_read = true;
          if (is_in_head(use.user)) return;
          leads &= reads_one_value(use.user);
          nodes->push_back(use.user);
        });
      if (!is_read || !leads) return false;
    }
    return true;
  }

  bool reads_one_value(NodeId n) const {
    size_t values = 0;
    for (const Arg& arg : graph_.node(n).args) arg.walk([&](const Arg& a) { values += a.is(ArgKind::value); });
    return values == 1;
  }

  const Program& program_;
  Graph& graph_;
  RematPolicy policy_;
  const RematSelectors& selectors_;
  const SizeValues& sizes_;
  Recompute crossing_;
  bool has_earlier_run_ = false;
  std::vector<int32_t> layer_;  // by node
  NodeId last_layered_, head_;
};

}  // namespace

RematTags tag_for_recompute(Program* program, RematPolicy policy, const RematSelectors& selectors,
                            const SizeValues& sizes, Recompute crossing) {
  if (policy == RematPolicy::tags) return {};
  return Tagger(program, policy, selectors, sizes, crossing).run();
}

void write_decision(Graph* graph, const RematModel& model, const RematDecision& decision,
                    const std::vector<uint8_t>& open, Recompute kept) {
  for (uint32_t at = 0; at < model.size(); ++at) {
    const NodeId n = model.node(at);
    const Recompute is = graph->meta(n).recompute;
    const Recompute decided = !decision.recompute[at] ? kept : is_recomputed(is) ? is : Recompute::must_recompute;
    if (!open[at] || is == decided) continue;
    NodeMeta meta = graph->meta(n);
    meta.recompute = decided;
    graph->set_meta(n, std::move(meta));
  }
}

}  // namespace sg
