#include "libpasses/offload.h"

#include <algorithm>

#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libgraph/plan.h"
#include "libpasses/offload_apply.h"

namespace sg {
namespace {

// What was done in one program.
struct Outcome {
  size_t moved = 0, over_budget = 0, of_no_use = 0, kept = 0;
  int64_t host_bytes = 0;                // planned, earlier runs included
  int64_t peak_before = 0, peak_after = 0;
  bool taken_back = false;               // the plan would have grown
  std::vector<std::string> lines;
};

struct Measured {
  Liveness liveness;
  MemoryPlan plan;
};

Measured measure(const Program& program) {
  const SizeValues hints = [&](StrId s) { return program.find_symbol(s) ? program.find_symbol(s)->hint : std::nullopt; };
  Measured out{compute_liveness(program, program.graph, hints), {}};
  out.plan = plan_memory(out.liveness);
  return out;
}

std::string sized(const Graph& graph, ValueId v, int64_t bytes) {
  return "%" + std::string(graph.name(v)) + ", " + human_bytes(static_cast<double>(bytes));
}

std::vector<std::string> explain(const Graph& graph, const OffloadFacts& facts, const OffloadChoice& choice) {
  std::vector<std::string> out;
  const auto label = [&](NodeId n) { return "%" + std::string(graph.label(n)); };
  std::vector<bool> goes(facts.candidates.size(), false);
  for (const OffloadChoice::Taken& taken : choice.taken) {
    const OffloadCandidate& c = facts.candidates[taken.candidate];
    const OffloadWay& way = c.ways[taken.way];
    goes[taken.candidate] = true;
    out.push_back(sized(graph, c.value, c.bytes) + ": on the host from behind " + label(way.leave_after) + "; fetched before " +
                  label(way.fetch_before) + " for " + label(c.first_use) + (taken.way > 0 ? ", later than asked for: else it is back at the peak" : ""));
  }
  for (size_t i = 0; i < facts.candidates.size(); ++i)
    if (!goes[i])
      out.push_back(sized(graph, facts.candidates[i].value, facts.candidates[i].bytes) + " stays: it is not at the peak, or the budget is spent");
  for (const OffloadKept& k : facts.kept) out.push_back(sized(graph, k.value, k.bytes) + " stays: " + std::string(k.why));
  return out;
}

Outcome offload_program(Program* program, const OffloadOptions& options, bool wants_lines) {
  Outcome out;
  const Measured before = measure(*program);
  out.peak_before = out.peak_after = before.plan.arena_bytes;
  out.host_bytes = before.plan.host_bytes;
  if (before.plan.overflow) return out;
  const OffloadFacts facts = find_offload_candidates(program, before.liveness, options);
  std::optional<int64_t> left = options.budget_bytes;
  if (left) left = std::max<int64_t>(*left - before.plan.host_bytes, 0);
  const OffloadChoice choice = choose_offloads(facts.candidates, before.liveness, left, options.all);
  out.kept = facts.kept.size();
  out.over_budget = choice.over_budget;
  out.of_no_use = choice.of_no_use;
  if (wants_lines) out.lines = explain(program->graph, facts, choice);
  if (choice.taken.empty()) return out;
  Graph untouched(program->graph, &program->graph.pool());
  apply_offloads(program, facts.candidates, choice);
  const Measured after = measure(*program);
  if (after.plan.arena_bytes > before.plan.arena_bytes) {
    program->graph = std::move(untouched);
    out.taken_back = true;
    return out;
  }
  out.moved = choice.taken.size();
  out.peak_after = after.plan.arena_bytes;
  out.host_bytes = after.plan.host_bytes;
  return out;
}

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
  if (all.taken_back) return "the plan without the moved values would be larger";
  if (all.over_budget > 0) return "what would lower the peak does not fit the budget";
  if (all.of_no_use > 0) return plural(all.of_no_use, "value") + " could go, but the peak is made of others; --all moves them";
  if (all.kept > 0) return "of what the backward needs, nothing may go; --explain says why";
  return "the backward needs no value of the forward that is large enough";
}

std::string summary_of(const Outcome& all) {
  if (all.moved == 0) return "nothing to offload: " + reason_for_nothing(all);
  std::string out = plural(all.moved, "value") + " offloaded, " + human_bytes(static_cast<double>(all.host_bytes)) + " on the host, peak " +
                    human_bytes(static_cast<double>(all.peak_before)) + " -> " + human_bytes(static_cast<double>(all.peak_after));
  if (all.over_budget > 0) out += "; " + std::to_string(all.over_budget) + " more would not fit the budget";
  return out;
}

std::string json_of(const Outcome& all) {
  JsonWriter json;
  json.begin_object().key("offloaded").natural(all.moved).key("host_bytes").integer(all.host_bytes);
  json.key("peak_before").integer(all.peak_before).key("peak_after").integer(all.peak_after);
  json.key("over_budget").natural(all.over_budget).key("of_no_use").natural(all.of_no_use).key("decisions").begin_array();
  for (const std::string& line : all.lines) json.string(line);
  return json.end_array().end_object().take();
}

constexpr PassOption kOptions[] = {
    {"budget", 'b', "SIZE", "host memory that may be used in all; without it as much as lowers the peak"},
    {"prefetch", 0, "N", "layers of the backward before its use at which a value is fetched", "1"},
    {"defer", 0, "N", "layers of the forward behind its own at which a value must have left", "1"},
    {"least", 0, "SIZE", "smaller values stay on the device", "4KiB"},
    {"all", 0, {}, "also what does not lower the planned peak, largest first"},
};
constexpr std::string_view kPrecedes[] = {"chunk", "bucket", "overlap"};

Result<Change> run_offload(Job* job, const PassOptions& options, PassContext& context) {
  OffloadOptions out;
  if (options.has("budget")) {
    SG_ASSIGN(out.budget_bytes, options.bytes("budget", 0));
  }
  SG_ASSIGN(out.prefetch, options.whole("prefetch", out.prefetch, 0));
  SG_ASSIGN(out.defer, options.whole("defer", out.defer, 0));
  SG_ASSIGN(out.least_bytes, options.bytes("least", out.least_bytes));
  out.all = options.has("all");
  return offload(job, out, context);
}

}  // namespace

Result<Change> offload(Job* job, const OffloadOptions& options, PassContext& context) {
  std::vector<Outcome> outcomes;
  for (auto& program : job->programs) outcomes.push_back(offload_program(program.get(), options, context.explain));
  const Outcome all = sum_of(outcomes);
  Change change;
  change.changed = all.moved > 0;
  change.summary = summary_of(all);
  if (!context.explain) return change;
  for (const std::string& line : all.lines) change.plan += line + "\n";
  change.plan_json = json_of(all);
  return change;
}

constexpr PassInfo offload_pass = {
    "offload", "let values of the forward wait for the backward in the host's memory", {}, Results::bitwise, kPrecedes, kOptions,
    {{"sg-offload step.sg --budget 4GiB -o lean.sg", "at most 4 GiB of host memory a rank"},
     {"sg-remat step.sg | sg-offload --explain | sg-run - --plan", "behind recomputation; and what it comes to"}},
    run_offload};

}  // namespace sg
