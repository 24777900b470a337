#include "libgraph/plan/plan_report.h"

#include <algorithm>

#include "libgraph/base/checked.h"
#include "libgraph/names.h"
#include "libgraph/story/source_text.h"

namespace sg {
namespace {

__extension__ typedef __int128 Wide;  // sums of many 63-bit sizes

class Reporter {
 public:
  Reporter(const Job& job, const Program& program, const SizeValues& values, const Facts* facts, const Liveness& live,
           const MemoryPlan& plan)
      : job_(job), program_(program), graph_(program.graph), values_(values), facts_(facts), live_(live), plan_(plan) {}

  PlanReport run() {
    out_.title = job_.pool->strings.str(job_.title);
    out_.ranks = program_.ranks;
    out_.world = job_.world;
    out_.peak_bytes = plan_.arena_bytes;
    out_.lower_bound_bytes = plan_.lower_bound_bytes;
    out_.output_bytes = plan_.output_bytes;
    out_.host_bytes = plan_.host_bytes;
    out_.host_bound_bytes = live_.host_bound_bytes;
    add_inputs();
    add_peak();
    add_phases();
    add_pool();
    return std::move(out_);
  }

 private:
  void add_inputs() {
    for (const Input& input : graph_.inputs()) {
      int64_t bytes = storage_bytes(graph_.pool(), graph_.type(input.value), values_).value_or(0);
      out_.inputs_bytes = saturating_add(out_.inputs_bytes, bytes);
      if (input.kind == InputKind::parameter) out_.parameters_bytes = saturating_add(out_.parameters_bytes, bytes);
    }
  }

  std::string file_of(NodeId n) const { return short_source_text(graph_.pool(), graph_.node(n).source); }

  std::string module_of(NodeId n) const {
    StrId module = graph_.node(n).module;
    return module.is_none() ? std::string() : std::string(graph_.pool().strings[module]);
  }

  PlanOwner owner_of(const LiveStorage& s) const {
    PlanOwner owner;
    owner.name = graph_.name(s.owner);
    owner.op = graph_.op_name(s.def);
    owner.phase = name_of(graph_.node(s.def).phase);
    owner.module = module_of(s.def);
    owner.source = file_of(s.def);
    if (!s.is_output) owner.until = graph_.label(s.last);
    owner.bytes = s.bytes;
    return owner;
  }

  void add_peak() {
    if (live_.schedule.empty()) return;
    NodeId peak = live_.schedule[live_.peak_position];
    out_.peak_node = graph_.label(peak);
    out_.peak_phase = name_of(graph_.node(peak).phase);
    out_.peak_module = module_of(peak);
    out_.peak_source = file_of(peak);
    out_.call_bytes = live_.call_bytes_at_peak;
    for (uint32_t i : live_.live_at_peak) out_.live_at_peak.push_back(owner_of(live_.storages[i]));
  }

  void add_phases() {
    for (Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
      PhasePeak peak;
      for (size_t i = 0; i < live_.schedule.size(); ++i) {
        NodeId n = live_.schedule[i];
        if (graph_.node(n).phase != phase || (!peak.node.empty() && live_.live_bytes[i] <= peak.bytes)) continue;
        peak = {std::string(name_of(phase)), std::string(graph_.label(n)), live_.live_bytes[i]};
      }
      if (!peak.node.empty()) out_.phases.push_back(std::move(peak));
    }
  }

  // The symbol's value, else the top of its range.
  std::optional<int64_t> at_most(StrId symbol) const {
    if (auto value = values_(symbol)) return value;
    if (!facts_) return std::nullopt;
    Interval range = facts_->range_of_symbol(symbol);
    return range.has_max() ? std::optional<int64_t>(range.max) : std::nullopt;
  }

  void add_pool() {
    SizeValues most = [this](StrId symbol) { return at_most(symbol); };
    std::vector<Wide> change(live_.schedule.size() + 1, 0);  // by position: begins minus ends
    for (StorageId id : plan_.pooled) {
      const LiveStorage& s = *live_.find(id);
      TypeKind kind = graph_.type(s.owner).kind;
      if (kind != TypeKind::tensor && kind != TypeKind::list) continue;  // uses no memory of the run
      auto bytes = storage_bytes(graph_.pool(), graph_.type(s.owner), most);
      PooledOwner pooled{owner_of(s), bytes.has_value()};
      pooled.owner.bytes = bytes.value_or(0);
      out_.pool_unbounded += !bytes;
      change[s.first_position] += pooled.owner.bytes;
      change[s.last_position + 1] -= pooled.owner.bytes;
      out_.pooled.push_back(std::move(pooled));
    }
    std::stable_sort(out_.pooled.begin(), out_.pooled.end(),
                     [](const PooledOwner& a, const PooledOwner& b) { return a.owner.bytes > b.owner.bytes; });
    Wide now = 0, largest = 0;
    for (Wide c : change) largest = std::max(largest, now += c);
    out_.pool_bound_bytes = static_cast<int64_t>(std::min<Wide>(largest, INT64_MAX));
  }

  const Job& job_;
  const Program& program_;
  const Graph& graph_;
  const SizeValues& values_;
  const Facts* facts_;
  const Liveness& live_;
  const MemoryPlan& plan_;
  PlanReport out_;
};

}  // namespace

PlanReport report_plan(const Job& job, const Program& program, const SizeValues& values, const Facts* facts,
                       std::optional<AllocatorKind> allocator) {
  Liveness live = compute_liveness(program, program.graph, values);
  PlanReport out = report_plan(job, program, values, facts, live, plan_memory(live));
  if (allocator) out.allocation = allocate_step(program, live, *allocator);
  return out;
}

PlanReport report_plan(const Job& job, const Program& program, const SizeValues& values, const Facts* facts,
                       const Liveness& liveness, const MemoryPlan& plan) {
  return Reporter(job, program, values, facts, liveness, plan).run();
}

}  // namespace sg
