// Which values may wait on the host, and where on the schedule they leave and come back.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "libgraph/facts/transfer.h"
#include "libgraph/infer/infer_sizes.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/layers.h"
#include "libpasses/offload/offload_plan.h"

namespace sg {
namespace {

constexpr uint32_t kNowhere = 0xFFFFFFFFu;

// The layers of a step as they follow each other, in the forward and in the backward, by schedule position.
class LayerMap {
 public:
  LayerMap(const Graph& graph, const std::vector<NodeId>& schedule) {
    const Layers layers(graph);
    std::vector<std::pair<uint32_t, uint32_t>> spans;  // first and last forward position, as layers are met
    std::unordered_map<int32_t, size_t> seen;          // where in spans, by layer number
    std::unordered_set<int32_t> seen_late;
    for (uint32_t i = 0; i < schedule.size(); ++i) {
      const Node& node = graph.node(schedule[i]);
      if (graph.meta(schedule[i]).copy.kind == CopyKind::offload) continue;  // stands in other layers than its own
      const int32_t layer = layers.of(graph, schedule[i]);
      if (layer < 0) continue;
      if (node.phase != Phase::forward) {
        if (seen_late.insert(layer).second) late_.push_back(i);
        continue;
      }
      const auto [it, is_new] = seen.try_emplace(layer, spans.size());
      if (is_new) spans.push_back({i, i});
      else spans[it->second].second = i;
    }
    for (auto [first, last] : spans) begins_.push_back(first), ends_.push_back(last);
    for (size_t i = 1; i < ends_.size(); ++i) ends_[i] = std::max(ends_[i], ends_[i - 1]);
  }

  // No distance need be larger.
  int64_t count() const { return static_cast<int64_t>(std::max(begins_.size(), late_.size())) + 1; }

  // Where the layer that is `distance` layers behind the one at `position` ends; kNowhere = behind all layers.
  uint32_t end_behind(uint32_t position, int64_t distance) const {
    const auto at = std::ranges::upper_bound(begins_, position) - begins_.begin() - 1 + distance;
    if (at < 0) return 0;
    return at < static_cast<int64_t>(ends_.size()) ? ends_[static_cast<size_t>(at)] : kNowhere;
  }

  // Where the layer of the backward begins that is `distance` layers before the one at `position`; 0 = before all.
  uint32_t begin_before(uint32_t position, int64_t distance) const {
    const auto at = std::ranges::upper_bound(late_, position) - late_.begin() - 1 - distance;
    return at < 0 ? 0 : late_[static_cast<size_t>(at)];
  }

 private:
  std::vector<uint32_t> begins_, ends_, late_;
};

// What the schedule does with one storage.
struct Usage {
  ValueId base;                    // the last that is all of the storage, and no view
  uint32_t complete = 0;           // where that is made
  uint32_t last_early = 0;         // last use by a node of the forward
  uint32_t first_late = kNowhere;  // first node behind the forward that takes a value of the forward in it
  uint32_t last_write = 0;
  bool is_written_late = false;
  bool is_away = false;           // an earlier run has moved it
  bool has_strange_view = false;  // a value in it that nobody could make again from the base
};

class Finder {
 public:
  Finder(Program* program, const Liveness& liveness, const OffloadOptions& options, const OffloadClock* clock,
         const OffloadOutlook& outlook)
      : program_(*program),
        graph_(program->graph),
        live_(liveness),
        options_(options),
        clock_(clock),
        outlook_(outlook),
        alias_(*program, graph_),
        sizes_(&program->graph.pool(), program),
        layers_(graph_, liveness.schedule) {}

  OffloadFacts run() {
    usage_.resize(alias_.storages().size());
    position_.assign(graph_.node_id_limit(), 0);
    for (uint32_t i = 0; i < live_.schedule.size(); ++i) position_[live_.schedule[i].index] = i;
    count_work();
    for (uint32_t i = 0; i < live_.schedule.size(); ++i) {
      visit(live_.schedule[i], i);
      const Node& node = graph_.node(live_.schedule[i]);
      for (uint32_t r = 0; r < node.result_count; ++r) has_device_ |= !is_on_host(node.result(r));
    }
    std::vector<bool> is_copied(live_.schedule.size(), false);
    for (const RematCopy& copy : outlook_.copies) is_copied[copy.node] = true;
    for (const RematCopy& copy : outlook_.copies) visit_copy(live_.schedule[copy.node], copy.before, is_copied);
    OffloadFacts out;
    for (const LiveStorage& s : live_.storages) judge(s, &out);
    return out;
  }

 private:
  // Nodes that compute or send something, by position: what a value may be away during.
  void count_work() {
    work_.assign(live_.schedule.size() + 1, 0);
    last_forward_.assign(live_.schedule.size() + 1, kNowhere);
    for (size_t i = 0; i < live_.schedule.size(); ++i) {
      const NodeId n = live_.schedule[i];
      const OpInfo* op = graph_.op_info(n);
      work_[i + 1] = work_[i] + (op == nullptr || !(op->has(kView) || op->has(kSize) || starts_transfer(op)));
      last_forward_[i + 1] = is_early(n) ? static_cast<uint32_t>(i) : last_forward_[i];
      if (!is_early(n)) first_late_node_ = std::min(first_late_node_, static_cast<uint32_t>(i));
    }
  }

  bool is_on_host(ValueId v) const {
    const Type& type = graph_.type(v);
    return type.kind != TypeKind::tensor || type.device.is_none() || graph_.pool().strings[type.device] == "cpu";
  }
  bool is_early(NodeId n) const { return graph_.node(n).phase == Phase::forward; }

  void visit(NodeId n, uint32_t at) {
    for_used_operands(graph_, n, [&](ValueId v) { note_use(n, v, at); });
    for (StorageId s : alias_.writes(n)) note_write(n, s, at);
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) note_result(n, graph_.node(n).result(i), at);
  }

  // A node of the forward that will be computed again there. What it then takes from other copies is not waiting till
  // then.
  void visit_copy(NodeId n, uint32_t at, const std::vector<bool>& is_copied) {
    for_operands(graph_, n, [&](ValueId v) {
      const StorageId s = alias_.storage_of(v);
      const NodeId def = s.is_none() ? NodeId() : graph_.value(v).def;
      if (def && !is_copied[position_[def.index]])
        usage_[s.index].first_late = std::min(usage_[s.index].first_late, at);
    });
  }

  void note_use(NodeId n, ValueId v, uint32_t at) {
    const StorageId s = alias_.storage_of(v);
    if (s.is_none()) return;
    Usage& usage = usage_[s.index];
    usage.is_away |=
        transfer_of(graph_.op_info(n)) == Transfer::to_host && graph_.meta(n).copy.kind == CopyKind::offload;
    if (is_early(n)) usage.last_early = at;
    else if (const NodeId def = graph_.value(v).def; def && is_early(def))
      usage.first_late = std::min(usage.first_late, at);
  }

  void note_write(NodeId n, StorageId s, uint32_t at) {
    usage_[s.index].last_write = at;
    usage_[s.index].is_written_late |= !is_early(n);
  }

  // The owner, what a wait for it or a write to all of it gives: all of the storage. Views are taken again; anything
  // else is strange.
  void note_result(NodeId n, ValueId v, uint32_t at) {
    const StorageId s = alias_.storage_of(v);
    if (s.is_none() || !is_early(n) || is_plain_view(graph_, n)) return;
    Usage& usage = usage_[s.index];
    if (graph_.value(v).type == graph_.value(alias_.storage(s).owner).type) usage.base = v, usage.complete = at;
    else usage.has_strange_view = true;
  }

  void judge(const LiveStorage& s, OffloadFacts* out) {
    const Usage& usage = usage_[s.storage.index];
    if (usage.first_late == kNowhere || usage.is_away || s.is_host || !is_early(s.def) ||
        starts_transfer(graph_.op_info(s.def)))
      return;
    if (has_device_ && !usage.base.is_none() && is_on_host(usage.base)) return;
    if (s.bytes_known && s.bytes < options_.least_bytes) return;
    OffloadCandidate candidate;
    candidate.value = usage.base;
    candidate.bytes = s.bytes;
    const std::string_view why = objection(s, usage, &candidate);
    if (why.empty()) out->candidates.push_back(candidate);
    else out->kept.push_back({s.owner, s.bytes, why});
  }

  // Why it stays; empty = it may go, and the candidate says when.
  std::string_view objection(const LiveStorage& s, const Usage& usage, OffloadCandidate* candidate) {
    const Storage& storage = alias_.storage(s.storage);
    if (!s.bytes_known || is_sized_by_data(usage.base)) return "only the data decides its size";
    if (!storage.certain || alias_.class_members(storage.alias_class).size() != 1)
      return "it may share memory with another value";
    if (alias_.escapes(s.storage)) return "it is an output";
    if (usage.base.is_none() || !has_plain_type(usage.base)) return "it is not a dense tensor with its own memory";
    if (usage.is_written_late || usage.last_write >= usage.first_late) return "the backward writes to it";
    if (usage.last_early > usage.first_late) return "the forward uses it after the backward has";
    if (usage.has_strange_view) return "a view of it cannot be made again";
    if (is_gathered(s.def)) return "it can be gathered again (sg-remat)";
    const Recompute tag = graph_.meta(graph_.value(usage.base).def).recompute;
    if (tag == Recompute::prefer_recompute || tag == Recompute::must_recompute) return "it is to be recomputed";
    place(usage, candidate);
    return candidate->ways.empty() ? "it is needed again too soon" : std::string_view();
  }

  bool is_gathered(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return op != nullptr && op->has(kCollective) && op->name.find("all_gather") != std::string_view::npos;
  }

  // Then no budget could be kept to.
  bool is_sized_by_data(ValueId v) const {
    if (v.is_none() || graph_.type(v).kind != TypeKind::tensor) return false;
    std::vector<StrId> symbols;
    for (Expr e : graph_.type(v).shape) graph_.pool().exprs.collect_symbols(e, &symbols);
    return std::ranges::any_of(symbols, [&](StrId s) {
      const Symbol* symbol = program_.find_symbol(s);
      return symbol == nullptr || symbol->kind == SymbolKind::data;
    });
  }

  bool has_plain_type(ValueId v) {
    const Type& type = graph_.type(v);
    return type.kind == TypeKind::tensor && (type.offset.is_none() || sizes_.is(type.offset, 0)) &&
           sizes_.is_dense(type);
  }

  // At the distances asked for, or as near to them as there is a way at all; then away for as long as can be.
  void place(const Usage& usage, OffloadCandidate* candidate) {
    candidate->start_after = live_.schedule[complete_at(usage)];
    candidate->first_use = live_.schedule[usage.first_late];
    const std::optional<OffloadWay> asked =
        clock_ != nullptr ? way_in_time(usage, clock_->copy_us(candidate->bytes)) : way_as_asked(usage);
    for (const std::optional<OffloadWay>& way :
         {asked, way_at(usage, std::min<int64_t>(options_.defer, layers_.count()), 0), way_at(usage, -1, 0)})
      if (way && std::ranges::find(candidate->ways, *way) == candidate->ways.end()) candidate->ways.push_back(*way);
  }

  std::optional<OffloadWay> way_as_asked(const Usage& usage) {
    const int64_t farthest = std::min(options_.prefetch, layers_.count());
    for (int64_t defer = std::min(options_.defer, layers_.count()); defer >= 0; --defer)
      if (const auto way = way_at(usage, defer, farthest)) return way;
    for (int64_t prefetch = farthest - 1; prefetch >= 0; --prefetch)
      if (const auto way = way_at(usage, 0, prefetch)) return way;
    return std::nullopt;
  }

  // It has left when the copy is through, and comes back so long before its use as that takes.
  std::optional<OffloadWay> way_in_time(const Usage& usage, double copy_us) {
    const std::vector<double>& begin = clock_->begin_us;
    const uint32_t use = usage.first_late, complete = complete_at(usage);
    const auto left = std::ranges::lower_bound(begin, begin[complete] + copy_us) - begin.begin();
    const uint32_t leave =
        std::max({complete, usage.last_early, std::min(static_cast<uint32_t>(left), last_forward_[use])});
    const auto back = std::ranges::upper_bound(begin, begin[use] - copy_us) - begin.begin() - 1;
    const uint32_t fetch =
        std::clamp(static_cast<uint32_t>(std::max<std::ptrdiff_t>(back, 0)), std::min(first_late_node_, use), use);
    return way_between(leave, fetch);
  }

  static uint32_t complete_at(const Usage& usage) { return std::max(usage.complete, usage.last_write); }

  // None = it would never be away. `defer` -1: it leaves behind its last use.
  std::optional<OffloadWay> way_at(const Usage& usage, int64_t defer, int64_t prefetch) {
    const uint32_t use = usage.first_late;
    uint32_t leave = std::max(complete_at(usage), usage.last_early);
    if (defer >= 0) leave = std::max(leave, std::min(layers_.end_behind(usage.complete, defer), last_forward_[use]));
    return way_between(leave, prefetch == 0 ? use : std::max(layers_.begin_before(use, prefetch), first_late_node_));
  }

  std::optional<OffloadWay> way_between(uint32_t leave, uint32_t fetch) const {
    if (fetch <= leave || work_[fetch] - work_[leave + 1] == 0) return std::nullopt;
    return OffloadWay{live_.schedule[leave], live_.schedule[fetch], leave + 1, fetch - 1};
  }

  Program& program_;
  const Graph& graph_;
  const Liveness& live_;
  const OffloadOptions& options_;
  const OffloadClock* clock_;  // null = distances are layers
  const OffloadOutlook& outlook_;
  AliasAnalysis alias_;
  Sizes sizes_;
  LayerMap layers_;
  std::vector<Usage> usage_;            // by storage
  std::vector<uint32_t> position_;      // by node
  std::vector<uint32_t> work_;          // by position: nodes before it that do something
  std::vector<uint32_t> last_forward_;  // by position: the last forward node before it
  uint32_t first_late_node_ = kNowhere;
  bool has_device_ = false;  // some values are not on the host; those that are then stay
};

}  // namespace

bool is_plain_view(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr || op->has(kWait) || op->has(kHigherOrder)) return false;
  return (op->has(kView) || op->has(kMayAlias)) && op->has(kPure);
}

OffloadFacts find_offload_candidates(Program* program, const Liveness& liveness, const OffloadOptions& options,
                                     const OffloadClock* clock, const OffloadOutlook& outlook) {
  return Finder(program, liveness, options, clock, outlook).run();
}

}  // namespace sg
