#include "libpasses/offload/offload.h"

#include <algorithm>
#include <unordered_map>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/expr/assume.h"
#include "libgraph/facts/recompute_tags.h"
#include "libgraph/plan/plan.h"
#include "libgraph/sim/simulate.h"
#include "libpasses/offload/offload_apply.h"
#include "libpasses/pass_order.h"
#include "libpasses/remat/remat.h"

namespace sg {
namespace {

constexpr int kMostRounds = 8;
constexpr int64_t kWorthwhile = 1000;  // a peak lower by a smaller part than one in so many is not worth copies

// What was done in one program.
struct Outcome {
  size_t moved = 0, over_budget = 0, of_no_use = 0, kept = 0;
  int64_t host_bytes = 0;  // planned, earlier runs included
  int64_t peak_before = 0, peak_after = 0;
  bool taken_back = false;  // the plan was no lower without what had been chosen
  std::vector<std::string> lines;
};

struct Measured {
  Liveness liveness;
  MemoryPlan plan;
};

Measured measure(const Program& program, const SizeValues& sizes) {
  Measured out{compute_liveness(program, program.graph, sizes), {}};
  out.plan = plan_memory(out.liveness);
  return out;
}

// When the nodes of a program begin on a machine; views and sizes when what comes before them does.
OffloadClock clock_of(const ProgramTimeline& timeline, const Liveness& live, const Machine& machine) {
  std::unordered_map<NodeId, double, IdHash> begin;
  for (const SimEvent& event : timeline.events)
    if (event.resource == Resource::compute) begin.try_emplace(event.node, event.begin_us);
  OffloadClock out;
  out.bytes_per_us = machine.device.copy_gbps * 1e3;
  double now = 0;
  for (NodeId n : live.schedule) {
    if (const auto it = begin.find(n); it != begin.end()) now = std::max(now, it->second);
    out.begin_us.push_back(now);
  }
  return out;
}

OffloadOutlook outlook_of(const Program& program, const SizeValues& sizes) {
  const Graph& graph = program.graph;
  bool is_tagged = false;
  for (NodeId n : graph.nodes()) is_tagged |= is_recomputed(graph.meta(n).recompute);
  if (!is_tagged) return {};
  RematModel model(program, graph, sizes);
  RematDecision tagged{std::vector<uint8_t>(model.size(), 0), {}};
  for (uint32_t at = 0; at < model.size(); ++at)
    tagged.recompute[at] = model.is_forward(at) && is_recomputed(graph.meta(model.node(at)).recompute);
  RematOutcome outcome = model.simulate(tagged);
  if (outcome.copies.empty()) return {};
  return {std::move(outcome.copies), std::move(outcome.live_bytes)};
}

std::string sized(const Graph& graph, ValueId v, int64_t bytes) {
  return "%" + std::string(graph.name(v)) + ", " + human_bytes(static_cast<double>(bytes));
}

// What goes; behind the last round also what stays.
void explain(const Graph& graph, const OffloadFacts& facts, const OffloadChoice& choice, bool taken_back, bool is_last,
             std::vector<std::string>* lines) {
  const std::string why = taken_back ? " stays: the plan without it is hardly lower, if at all"
                                     : " stays: it is not at the peak, or the budget is spent";
  std::vector<std::string>& out = *lines;
  const auto label = [&](NodeId n) { return "%" + std::string(graph.label(n)); };
  std::vector<bool> goes(facts.candidates.size(), false);
  for (const OffloadChoice::Taken& taken : choice.taken) {
    const OffloadCandidate& c = facts.candidates[taken.candidate];
    const OffloadWay& way = c.ways[taken.way];
    goes[taken.candidate] = true;
    out.push_back(sized(graph, c.value, c.bytes) + ": on the host from after " + label(way.leave_after) +
                  "; fetched before " + label(way.fetch_before) + " for " + label(c.first_use) +
                  (taken.way > 0 ? ", later than asked for: else it is back at the peak" : ""));
  }
  if (!is_last) return;
  for (size_t i = 0; i < facts.candidates.size(); ++i)
    if (!goes[i]) out.push_back(sized(graph, facts.candidates[i].value, facts.candidates[i].bytes) + why);
  for (const OffloadKept& k : facts.kept)
    out.push_back(sized(graph, k.value, k.bytes) + " stays: " + std::string(k.why));
}

class ProgramOffload {
 public:
  ProgramOffload(Job* job, size_t which, const SizeValues& sizes, const OffloadOptions& options)
      : job_(*job),
        which_(which),
        program_(*job->programs[which]),
        sizes_(sizes),
        options_(options),
        outlook_(outlook_of(program_, sizes)) {}

  // In rounds, as what is left depends on where the plan then has its peak: a second run finds nothing.
  Result<Outcome> run(const ProgramTimeline* timeline, const Machine& machine, bool wants_lines) {
    Outcome out;
    Measured now = measure(program_, sizes_);
    MemoryPlan before = now.plan;
    if (is_tagged()) {
      SG_ASSIGN(before, plan_once_applied());
    }
    out.peak_before = out.peak_after = before.arena_bytes;
    out.host_bytes = now.plan.host_bytes;
    if (before.overflow || now.plan.overflow) return out;
    const Outcome none = out;
    Graph untouched(program_.graph, &program_.graph.pool());
    for (int round = 0; round < kMostRounds; ++round) {
      std::optional<OffloadClock> clock;
      if (timeline != nullptr) clock = clock_of(*timeline, now.liveness, machine);
      OffloadFacts facts =
          find_offload_candidates(&program_, now.liveness, options_, clock ? &*clock : nullptr, outlook_);
      OffloadChoice choice;
      bool is_taken = false;
      for (int64_t over = 0; !is_taken;) {
        choice = choose(facts, now.liveness, out.host_bytes + over);
        if (choice.taken.empty()) break;
        if (clock) queue_fetches(choice, now.liveness, *clock, first_late(now.liveness), &facts.candidates);
        SG_ASSIGN(const Tried tried, try_it(facts, choice, &now, &out));
        is_taken = tried.is_taken;
        if (tried.over_budget == 0) break;
        over += tried.over_budget;
      }
      out.kept = facts.kept.size();
      out.over_budget = choice.over_budget;
      out.of_no_use = choice.of_no_use;
      out.taken_back = !choice.taken.empty() && !is_taken && out.moved == 0;
      const bool is_last = !is_taken || options_.all || is_tagged();
      if (wants_lines)
        explain(program_.graph, facts, is_taken ? choice : OffloadChoice(), out.taken_back, is_last, &out.lines);
      if (is_last) break;
    }
    if (out.moved == 0 || options_.all || out.peak_after <= out.peak_before - out.peak_before / kWorthwhile) return out;
    program_.graph = std::move(untouched);
    return take_back(none, timeline, machine, wants_lines);
  }

 private:
  // What a look comes to that has put the graph back as it was.
  Outcome take_back(Outcome out, const ProgramTimeline* timeline, const Machine& machine, bool wants_lines) {
    out.taken_back = true;
    if (!wants_lines) return out;
    const Measured now = measure(program_, sizes_);
    std::optional<OffloadClock> clock;
    if (timeline != nullptr) clock = clock_of(*timeline, now.liveness, machine);
    const OffloadFacts facts =
        find_offload_candidates(&program_, now.liveness, options_, clock ? &*clock : nullptr, outlook_);
    explain(program_.graph, facts, OffloadChoice(), true, true, &out.lines);
    return out;
  }

  bool is_tagged() const { return !outlook_.copies.empty(); }

  OffloadChoice choose(const OffloadFacts& facts, const Liveness& live, int64_t host_bytes) const {
    std::optional<int64_t> left = options_.budget_bytes;
    if (left) left = std::max<int64_t>(*left - host_bytes, 0);
    return choose_offloads(facts.candidates, is_tagged() ? outlook_.live_bytes : live.live_bytes, left, options_.all);
  }

  // The plan of the step once sg-remat has carried out its tags.
  Result<MemoryPlan> plan_once_applied() const {
    const size_t chosen[] = {which_};
    Job trial(job_, chosen);
    Diagnostics notes;
    PassContext context{&notes, false, false, 1, {}};
    SG_TRY(remat(&trial, {.policy = RematPolicy::tags, .target = {}, .save = {}}, context));
    return measure(*trial.programs[0], sizes_).plan;
  }

  uint32_t first_late(const Liveness& live) const {
    const auto is_late = [&](NodeId n) { return program_.graph.node(n).phase != Phase::forward; };
    return static_cast<uint32_t>(std::ranges::find_if(live.schedule, is_late) - live.schedule.begin());
  }

  struct Tried {
    bool is_taken = false;
    int64_t over_budget = 0;  // of the host's memory as planned: places are aligned, and there are gaps between them
  };

  // A plan that is not lower is not taken. `now`: what is measured then, of a graph without tags.
  Result<Tried> try_it(const OffloadFacts& facts, const OffloadChoice& choice, Measured* now, Outcome* out) {
    Graph untouched(program_.graph, &program_.graph.pool());
    apply_offloads(&program_, facts.candidates, choice);
    Measured next;
    MemoryPlan after;
    if (is_tagged()) {
      SG_ASSIGN(after, plan_once_applied());
    } else {
      next = measure(program_, sizes_);
      after = next.plan;
    }
    const int64_t allowed = std::max(options_.budget_bytes.value_or(INT64_MAX), out->host_bytes);
    if (after.arena_bytes > out->peak_after || (after.arena_bytes == out->peak_after && !options_.all) ||
        after.host_bytes > allowed) {
      program_.graph = std::move(untouched);
      return Tried{false, std::max<int64_t>(after.host_bytes - allowed, 0)};
    }
    out->moved += choice.taken.size();
    out->peak_after = after.arena_bytes;
    out->host_bytes = after.host_bytes;
    *now = std::move(next);
    return Tried{true, 0};
  }

  Job& job_;
  size_t which_;
  Program& program_;
  const SizeValues& sizes_;
  const OffloadOptions& options_;
  OffloadOutlook outlook_;
};

// Of all programs: counts together, bytes of the rank that has the most.
Outcome sum_of(const std::vector<Outcome>& programs) {
  Outcome all;
  for (const Outcome& o : programs) {
    all.moved += o.moved, all.over_budget += o.over_budget, all.of_no_use += o.of_no_use, all.kept += o.kept;
    all.taken_back |= o.taken_back;
    all.host_bytes = std::max(all.host_bytes, o.host_bytes);
    all.peak_before = std::max(all.peak_before, o.peak_before);
    all.peak_after = std::max(all.peak_after, o.peak_after);
    all.lines.insert(all.lines.end(), o.lines.begin(), o.lines.end());
  }
  return all;
}

std::string reason_for_nothing(const Outcome& all) {
  if (all.taken_back) return "the plan without what could go is hardly lower, if at all";
  if (all.over_budget > 0) return "what would lower the peak does not fit the budget";
  if (all.of_no_use > 0) return plural(all.of_no_use, "value") + " could go, but others set the peak; --all moves them";
  if (all.kept > 0) return "of what the backward needs, nothing may go; --explain says why";
  return "the backward needs no value of the forward that is large enough";
}

std::string summary_of(const Outcome& all) {
  if (all.moved == 0) return "nothing to offload: " + reason_for_nothing(all);
  std::string out = plural(all.moved, "value") + " offloaded, " + human_bytes(static_cast<double>(all.host_bytes)) +
                    " on the host, peak " + human_bytes(static_cast<double>(all.peak_before)) + " -> " +
                    human_bytes(static_cast<double>(all.peak_after));
  if (all.over_budget > 0) out += "; " + std::to_string(all.over_budget) + " more would not fit the budget";
  return out;
}

std::string json_of(const Outcome& all) {
  JsonWriter json;
  json.begin_object().member("offloaded", all.moved).member("host_bytes", all.host_bytes);
  json.member("peak_before", all.peak_before).member("peak_after", all.peak_after);
  json.member("over_budget", all.over_budget).member("of_no_use", all.of_no_use).key("decisions").begin_array();
  for (const std::string& line : all.lines) json.string(line);
  return json.end_array().end_object().take();
}

constexpr PassOption kOffloadOptions[] = {
    {"budget", 'b', "SIZE", "total host memory per rank (default: as much as lowers the peak)"},
    {"prefetch", 0, "N|auto", "fetch a value N layers before its use; auto: by simulated copy times", "1"},
    {"defer", 0, "N", "a value must have left the device N forward layers after its own", "1"},
    {"machine", 'm', "MACHINE|FILE", "machine for --prefetch auto, as in sg-sim", "h100-8"},
    {"least", 0, "SIZE", "smaller values stay on the device", "4KiB"},
    {"all", 0, {}, "also offload values that do not lower the planned peak, largest first"},
};
constexpr LaterPass kOffloadPrecedes[] = {{"bucket"}, {"overlap"}};

bool has_offloaded(const Job& job, std::span<const std::string>) {
  return has_mark(job, [](const NodeMeta& m) { return m.copy.kind == CopyKind::offload; });
}

Result<OffloadOptions> read_offload_options(const PassOptions& options) {
  OffloadOptions out;
  if (options.has("budget")) {
    SG_ASSIGN(out.budget_bytes, options.bytes("budget", 0));
  }
  const bool in_time = options.text("prefetch") == "auto";
  if (options.has(in_time ? "defer" : "machine"))
    return option_error(in_time ? "defer" : "machine",
                        in_time ? " cannot be combined with --prefetch auto" : " needs --prefetch auto",
                        "distances are layers, or as long as copies take on a machine");
  if (in_time) out.machine = options.text("machine", "h100-8");
  else {
    SG_ASSIGN(out.prefetch, options.whole("prefetch", out.prefetch, 0));
  }
  SG_ASSIGN(out.defer, options.whole("defer", out.defer, 0));
  SG_ASSIGN(out.least_bytes, options.bytes("least", out.least_bytes));
  out.all = options.has("all");
  return out;
}

Result<Change> run_offload(Job* job, const PassOptions& options, PassContext& context) {
  SG_ASSIGN(const OffloadOptions read, read_offload_options(options));
  return offload(job, read, context);
}

Status check_offload(const PassOptions& options) {
  SG_TRY(read_offload_options(options));
  return ok_status();
}

// Whether the link keeps up.
std::string held_up(const ProgramTimeline& before, const ProgramTimeline& after, const std::string& machine) {
  return "; on " + machine + " the step takes " + human_time(after.makespan_us * 1e-6) + ", " +
         human_time(after.copy_us * 1e-6) + " of it waiting for copies, before " +
         human_time(before.makespan_us * 1e-6);
}

// A plan that was not taken ends the rounds of one look at the program; a fresh look may find another. Until none does.
template <class Look>
Result<Outcome> look_again(const Look& look) {
  SG_ASSIGN(Outcome all, look());
  for (int i = 0; all.moved > 0 && i < kMostRounds; ++i) {
    SG_ASSIGN(const Outcome more, look());
    if (more.moved == 0) break;
    all.moved += more.moved;
    all.host_bytes = more.host_bytes, all.peak_after = more.peak_after;
    all.lines.insert(all.lines.end(), more.lines.begin(), more.lines.end());
  }
  return all;
}

// All programs of the job; `before`: simulated, for distances in time.
Result<Outcome> offload_all(Job* job, const OffloadOptions& options, const std::vector<SymbolValues>& values,
                            const Simulation* before, const Machine& machine, bool wants_lines) {
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < job->programs.size(); ++i) {
    const SizeValues sizes = [&](StrId symbol) { return values[i].value(symbol); };
    const auto look = [&] {
      ProgramOffload one(job, i, sizes, options);
      return one.run(before != nullptr ? &before->programs[i] : nullptr, machine, wants_lines);
    };
    SG_ASSIGN(Outcome outcome, look_again(look));
    outcomes.push_back(std::move(outcome));
  }
  return sum_of(outcomes);
}

// Distances in time; or in layers, where that makes the simulated step no longer, and the peak no higher: fetches that
// begin early are in the way of others on the link. Adds to `told` how long the step waits.
Result<Outcome> offload_in_time(Job* job, const OffloadOptions& options, const std::vector<SymbolValues>& values,
                                bool wants_lines, std::string* told) {
  SimOptions machine;
  SG_ASSIGN(machine.machine, find_machine(options.machine));
  SG_ASSIGN(const Simulation before, simulate(*job, values, machine));
  Job by_layers(*job);
  SG_ASSIGN(Outcome all, offload_all(job, options, values, &before, machine.machine, wants_lines));
  if (all.moved == 0) return all;
  SG_ASSIGN(Simulation after, simulate(*job, values, machine));
  OffloadOptions in_layers = options;
  in_layers.machine.clear();
  SG_ASSIGN(Outcome other, offload_all(&by_layers, in_layers, values, nullptr, machine.machine, wants_lines));
  SG_ASSIGN(Simulation other_after, simulate(by_layers, values, machine));
  if (other.moved > 0 && other.peak_after <= all.peak_after &&
      other_after.worst().makespan_us < after.worst().makespan_us) {
    *job = std::move(by_layers);
    all = std::move(other), after = std::move(other_after);
    *told += "; fetched a layer ahead, as by the time of copies the step is longer";
  }
  *told += held_up(before.worst(), after.worst(), machine.machine.name);
  return all;
}

}  // namespace

Result<Change> offload(Job* job, const OffloadOptions& options, PassContext& context) {
  const std::vector<SymbolValues> values = usual_values(*job);
  std::string told;
  SG_ASSIGN(const Outcome all, options.machine.empty() ? offload_all(job, options, values, nullptr, {}, context.explain)
                                                       : offload_in_time(job, options, values, context.explain, &told));
  Change change;
  change.changed = all.moved > 0;
  change.summary = summary_of(all) + told;
  if (!context.explain) return change;
  for (const std::string& line : all.lines) change.plan += line + "\n";
  change.plan_json = json_of(all);
  return change;
}

constexpr PassInfo offload_pass = {
    .name = "offload",
    .summary = "keep forward values in host memory until the backward needs them",
    .precedes = kOffloadPrecedes,
    .options = kOffloadOptions,
    .examples = {{"sg-offload step.sg --budget 4GiB -o lean.sg", "use at most 4 GiB of host memory per rank"},
                 {"sg-remat step.sg | sg-offload --explain | sg-run - --plan",
                  "after recomputation; print the resulting memory plan"}},
    .run = run_offload,
    .check = check_offload,
    .has_left_traces = has_offloaded,
};

}  // namespace sg
