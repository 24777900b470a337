#include "libpasses/remat_tags.h"

#include <algorithm>
#include <cstdint>

#include "libgraph/op.h"
#include "libpasses/layers.h"

namespace sg {
namespace {

// "aten.mm.default" is called by its whole name, "aten.mm" or "mm".
bool is_called(std::string_view name, std::string_view wanted) {
  if (name == wanted) return true;
  const size_t overload = name.rfind('.');
  const std::string_view packet = overload == std::string_view::npos ? name : name.substr(0, overload);
  if (packet == wanted) return true;
  const size_t space = packet.find('.');
  return space != std::string_view::npos && packet.substr(space + 1) == wanted;
}

// Attention in one op: its result is small for what it costs.
bool is_fused_attention(const OpInfo& op) { return op.has(kContraction) && op.has(kRandomIfDropout); }

// Costs more to compute again than its memory is worth, as a rule. As PyTorch's own list, which leaves out the
// attention kernel for CPUs.
bool is_costly(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr) return true;
  const std::string_view name = op->name;
  if (is_called(name, "_scaled_dot_product_flash_attention_for_cpu")) return false;
  if (op->has(kCollective)) return name.find("all_gather") == std::string_view::npos;
  if (op->has(kContraction) || op->has(kHigherOrder)) return !is_called(name, "_grouped_mm");
  for (std::string_view other : {"topk", "sort", "argsort", "max", "linear"})
    if (is_called(name, other) && graph.node(n).result_count > (other == "max" ? 1 : 0)) return true;
  return false;
}

class Tagger {
 public:
  Tagger(Program* program, RematPolicy policy, const SaveSelectors& save, Recompute crossing)
      : graph_(program->graph), policy_(policy), save_(save), crossing_(crossing) {}

  RematTags run() {
    if (is_rule()) find_earlier_run();
    find_layers();
    for (NodeId n : graph_.nodes())
      if (graph_.node(n).phase == Phase::forward) set(n, tag_of(n));
    return {keep_what_crosses_layers(), head_};
  }

 private:
  void set(NodeId n, Recompute tag) {
    if (graph_.meta(n).recompute == tag) return;
    NodeMeta meta = graph_.meta(n);
    meta.recompute = tag;
    graph_.set_meta(n, std::move(meta));
  }

  // Else there is a target, and a search decides by what it comes to: rules of thumb are none of its business.
  bool is_rule() const { return crossing_ == Recompute::must_save; }

  bool is_copy(NodeId n) const { return graph_.meta(n).copy.kind == CopyKind::remat; }

  void find_earlier_run() {
    for (NodeId n : graph_.nodes()) has_copies_ |= is_copy(n);
  }

  void find_layers() {
    const Layers layers(graph_);
    layer_.assign(graph_.node_id_limit(), -1);
    for (NodeId n : graph_.nodes()) {
      const bool is_forward = graph_.node(n).phase == Phase::forward;
      if (!is_forward && !is_copy(n)) continue;
      layer_[n.index] = layers.of(graph_, n);
      if (is_forward && layer_[n.index] >= 0) last_layered_ = n;
    }
    if (last_layered_ && is_rule()) find_head();
    for (NodeId n = last_layered_ ? graph_.next(last_layered_) : NodeId(); n; n = graph_.next(n))
      if (layer_[n.index] < 0 && graph_.node(n).phase == Phase::forward)
        layer_[n.index] = INT32_MAX;  // behind all layers
  }

  // The first product behind the last layer, else what follows that layer.
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
    const bool was_head = has_copies_ && graph_.meta(n).recompute == Recompute::none;
    if (was_head || (head_ && (n == head_ || graph_.before(head_, n)))) return Recompute::none;
    const OpInfo* op = graph_.op_info(n);
    if (save_.matches(graph_, n) || op == nullptr || op->has(kSize) || op->has(kHostSync)) return Recompute::must_save;
    if (op->has(kWait)) return tag_of_launch(n);
    if (policy_ == RematPolicy::none) return Recompute::must_save;
    if (has_copies_ && graph_.meta(n).recompute == Recompute::prefer_save) return Recompute::prefer_save;
    if (policy_ == RematPolicy::all) return Recompute::must_recompute;
    if (policy_ == RematPolicy::full) return is_fused_attention(*op) ? Recompute::must_save : Recompute::must_recompute;
    return is_costly(graph_, n) ? Recompute::must_save : Recompute::prefer_recompute;
  }

  // A wait is part of its launch.
  Recompute tag_of_launch(NodeId wait) const {
    for (const Arg& arg : graph_.node(wait).args)
      if (arg.is(ArgKind::value))
        if (NodeId launch = graph_.value(arg.as_value()).def) return graph_.meta(launch).recompute;
    return Recompute::must_save;
  }

  // In the forward, or by an earlier run no longer there.
  bool is_recomputed_node(NodeId n) const {
    return graph_.node(n).phase == Phase::forward ? is_recomputed(graph_.meta(n).recompute) : is_copy(n);
  }

  // So that recomputing one layer does not begin in another.
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

  Graph& graph_;
  RematPolicy policy_;
  const SaveSelectors& save_;
  Recompute crossing_;
  bool has_copies_ = false;
  std::vector<int32_t> layer_;  // by node
  NodeId last_layered_, head_;
};

}  // namespace

Result<SaveSelectors> SaveSelectors::parse(const std::vector<std::string>& items) {
  SaveSelectors out;
  for (const std::string& text : items) {
    Item item{text, {}, {}};
    std::string module;
    const size_t colon = text.rfind(':');
    if (text.starts_with("op=")) item.op = text.substr(3);
    else if (colon != std::string::npos) module = text.substr(0, colon), item.op = text.substr(colon + 1);
    else module = text;
    if ((module.empty() && item.op.empty()) || (colon != std::string::npos && item.op.empty()))
      return Error{ErrorKind::usage,
                   "--save cannot read '" + text + "'",
                   {},
                   "write PATTERN, PATTERN:OP or op=OP, for example 'layers.*.attention:mm'"};
    if (!module.empty()) {
      SG_ASSIGN(item.module, ModulePattern::parse(module));
    }
    out.items_.push_back(std::move(item));
  }
  return out;
}

bool SaveSelectors::matches(const Item& item, const Graph& graph, NodeId n) {
  if (!item.op.empty() && !is_called(graph.op_name(n), item.op)) return false;
  if (!item.module) return true;
  const StrId module = graph.node(n).module;
  return module && item.module->matches(graph.pool().strings[module]);
}

bool SaveSelectors::matches(const Graph& graph, NodeId n) const {
  return std::ranges::any_of(items_, [&](const Item& item) { return matches(item, graph, n); });
}

Status SaveSelectors::check_used(const Job& job) const {
  for (const Item& item : items_) {
    bool is_used = false;
    for (const auto& program : job.programs)
      for (NodeId n : program->graph.nodes())
        is_used |= program->graph.node(n).phase == Phase::forward && matches(item, program->graph, n);
    if (!is_used)
      return Error{ErrorKind::cannot_apply,
                   "--save " + item.text + " fits no forward node",
                   {},
                   "sg-stat --by module lists the modules, --by op the ops"};
  }
  return ok_status();
}

RematTags tag_for_recompute(Program* program, RematPolicy policy, const SaveSelectors& save, Recompute crossing) {
  return policy == RematPolicy::tags ? RematTags() : Tagger(program, policy, save, crossing).run();
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
