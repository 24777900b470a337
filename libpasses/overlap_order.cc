// sg-overlap for a job: finds an order for each program, and keeps it if the job is better for it and its ranks agree.
#include <algorithm>
#include <memory>

#include "libgraph/expr/assume.h"
#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libgraph/plan/plan.h"
#include "libpasses/agreement.h"
#include "libpasses/overlap_parts.h"

namespace sg {
namespace {

using namespace overlap_parts;

// Orders asked for, each with less memory, before one that plans for too much is given up.
constexpr int kPeakTries = 6;

// What a job takes on a machine. Sizes that only the data decides are as sg-sim assumes them.
struct Figures {
  double makespan_us = 0;
  int64_t peak_bytes = 0;    // planned, of the worst program
  int64_t hinted_bytes = 0;  // the same without what only the data decides: what sg-run plans
};

class Measure {
 public:
  static Result<Measure> make(const Job& job, const OverlapOptions& options) {
    Measure out;
    SG_ASSIGN(out.options_.machine, find_machine(options.machine));
    out.options_.events = false;
    SG_ASSIGN(out.values_, assume_values(job, infer_ranges(job), options.assume));
    return out;
  }

  const SimOptions& options() const { return options_; }
  const SymbolValues& values(size_t program) const { return values_[program]; }

  Result<Figures> figures(const Job& job) const {
    Figures out;
    SG_ASSIGN(const Simulation simulation, simulate(job, values_, options_));
    out.makespan_us = simulation.worst().makespan_us;
    for (size_t p = 0; p < job.programs.size(); ++p) {
      const Program& program = *job.programs[p];
      const int64_t assumed = planned(program, [&](StrId s) { return values_[p].value(s); });
      out.peak_bytes = std::max(out.peak_bytes, assumed);
      const SizeValues hints = [&](StrId s) -> std::optional<int64_t> {
        const Symbol* symbol = program.find_symbol(s);
        return symbol ? symbol->hint : std::nullopt;
      };
      out.hinted_bytes = std::max(out.hinted_bytes, program.symbols.empty() ? assumed : planned(program, hints));
    }
    return out;
  }

 private:
  static int64_t planned(const Program& program, const SizeValues& values) {
    return plan_memory(compute_liveness(program, program.graph, values)).arena_bytes;
  }

  SimOptions options_;
  std::vector<SymbolValues> values_;
};

// One order a program, and what belongs to it.
struct Plan {
  std::vector<std::unique_ptr<Step>> steps;      // by program; model
  std::vector<std::unique_ptr<Precedence>> own;  // by program; reference
  std::vector<Order> orders;
  std::vector<ReferenceOrder> references;  // by program; reference
  std::vector<DenseMove> dense;            // of the first program
  std::vector<Error> refused;

  const Precedence& precedence(size_t p) const { return steps.empty() ? *own[p] : steps[p]->precedence; }
  const StepCosts* costs(size_t p) const { return steps.empty() ? nullptr : &steps[p]->costs; }
};

std::string wrong_order(const Job& job, const Program& program, const Precedence& precedence, const Order& order) {
  if (order.size() != precedence.size()) return "an order leaves nodes out";
  const auto pair = precedence.violated(order);
  if (!pair) return {};
  for (const Constraint& c : precedence.facts().constraints_into(precedence.node(pair->second)))
    if (c.before == precedence.node(pair->first)) return explain(job, program.graph, precedence.node(pair->second), c);
  return "two nodes change places that must not";
}

// --- model ---

// The launches of a program in the order that `first` has chosen for its own, by group; the how-manieth of a group is the
// same in all. Behind the groups comes a list of all launches: ranks that launch in one order never wait for each other
// in a circle, in several groups as little as in one.
bool translate(const Precedence& first, const Order& order, const Precedence& to, size_t groups, Lists* out) {
  const Lists from = launches_of(first, groups), own = launches_of(to, groups);
  std::vector<uint32_t> at(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i;
  std::vector<std::pair<uint32_t, uint32_t>> pairs, all;  // all: where `first` has it, place
  for (uint32_t g = 0; g < groups; ++g) {
    if (from[g].size() != own[g].size()) return false;
    std::vector<uint32_t> turns(own[g].size());
    for (uint32_t k = 0; k < turns.size(); ++k) turns[k] = k;
    std::sort(turns.begin(), turns.end(), [&](uint32_t a, uint32_t b) { return at[from[g][a]] < at[from[g][b]]; });
    for (uint32_t k : turns) pairs.emplace_back(g, own[g][k]), all.emplace_back(at[from[g][k]], own[g][k]);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());  // a call that launches on several groups
  for (const auto& [turn, place] : all) pairs.emplace_back(static_cast<uint32_t>(groups), place);
  *out = Lists(groups + 1, pairs);
  return true;
}

// One order for each program; false when the programs cannot follow the first.
bool order_programs(const Job& job, int64_t limit, OrderScope scope, Plan* plan) {
  plan->orders.clear();
  for (size_t p = 0; p < job.programs.size(); ++p) {
    ModelLimits limits{limit, nullptr};
    Lists launches;
    if (p > 0 && scope == OrderScope::job) {
      if (!translate(plan->precedence(0), plan->orders[0], plan->precedence(p), job.groups.size(), &launches))
        return false;
      limits.launches = &launches;
    }
    std::vector<Order> starts;
    if (scope == OrderScope::job) {
      std::vector<Error> refused;
      Result<ReferenceOrder> reference = reference_order(*job.programs[p], plan->precedence(p), &refused);
      if (reference.ok() && !reference->exchange_waits.empty()) starts.push_back(std::move(reference->order));
    }
    plan->orders.push_back(find_order(*plan->steps[p], limits, starts));
    if (plan->orders.back().empty() && plan->precedence(p).size() != 0) return false;
  }
  return true;
}

void make_steps(const Job& job, const Measure& measure, OrderScope scope, Plan* plan) {
  plan->steps.clear();
  for (size_t p = 0; p < job.programs.size(); ++p)
    plan->steps.push_back(std::make_unique<Step>(job, *job.programs[p], measure.values(p), measure.options(), scope));
}

bool is_identity(const Order& order) { return std::ranges::is_sorted(order); }

struct Attempt {
  Job job;
  Figures figures;
};

// Applies the orders to a copy. An Error is a bug of ours: an order that breaks a rule.
Result<Attempt> apply(const Job& job, const Plan& plan, const Measure* measure) {
  Attempt out{Job(job), {}};
  for (size_t p = 0; p < job.programs.size(); ++p) {
    if (const std::string why = wrong_order(job, *job.programs[p], plan.precedence(p), plan.orders[p]); !why.empty())
      return Error{ErrorKind::internal, "sg-overlap has made an order that must not be: " + why};
    apply_order(&out.job.programs[p]->graph, plan.precedence(p), plan.orders[p]);
  }
  if (measure) {
    SG_ASSIGN(out.figures, measure->figures(out.job));
  }
  return out;
}

struct Outcome {
  Figures before, after;
  bool measured = false;
  bool kept = false;
  std::string why;  // not kept
};

Status run_model(Job* job, bool isolated, const OverlapOptions& options, PassContext& context, const Measure& measure,
                 Plan* plan, Outcome* out) {
  const int64_t limit = options.peak_bytes != 0 ? options.peak_bytes : out->before.peak_bytes;
  const bool above = out->before.peak_bytes > limit;
  OrderScope scope = OrderScope::job;
  make_steps(*job, measure, scope, plan);
  int64_t asked = limit;
  for (int tries = 0; tries < kPeakTries; ++tries) {
    if (!order_programs(*job, asked, scope, plan) && scope == OrderScope::job) {
      scope = OrderScope::rank;
      make_steps(*job, measure, scope, plan);
      order_programs(*job, asked, scope, plan);
    }
    if (!isolated && std::ranges::all_of(plan->orders, is_identity)) break;
    Result<Attempt> tried = apply(*job, *plan, &measure);
    if (!tried.ok() && tried.error().kind == ErrorKind::internal) return std::move(tried.error());
    const std::string parted = tried.ok() ? disagreement(&tried->job, context.threads) : tried.error().message;
    if (!parted.empty()) {
      if (scope == OrderScope::rank) {
        context.notes->warning("overlap", "ranks would not agree on their collectives: " + parted);
        break;
      }
      scope = OrderScope::rank;
      make_steps(*job, measure, scope, plan);
      continue;
    }
    const Figures& now = tried->figures;
    const int64_t over = std::max(now.peak_bytes - std::max(limit, above ? out->before.peak_bytes : 0),
                                  now.hinted_bytes - std::max(limit, out->before.hinted_bytes));
    if (over > 0) {
      asked -= over * (tries + 1);  // packing costs something, and not always the same
      continue;
    }
    const bool reaches = above && now.peak_bytes <= limit;
    if (now.makespan_us > out->before.makespan_us || (now.makespan_us == out->before.makespan_us && !reaches)) break;
    *job = std::move(tried->job);
    out->after = now;
    out->kept = true;
    return ok_status();
  }
  out->why = "no order was found that is shorter than " + human_us(out->before.makespan_us) + " on " + options.machine +
             " within " + human_bytes(static_cast<double>(limit));
  return ok_status();
}

// --- reference ---

// Set only to what is not said: a copy that leaves non_blocking out blocks.
void set_non_blocking(Graph* graph, NodeId n, bool value) {
  std::vector<Arg> args;
  const StrId key = graph->pool().strings.intern("non_blocking");
  for (const Arg& arg : graph->node(n).args)
    if (arg.key() != key) args.push_back(arg);
  if (value) args.push_back(Arg::boolean(true).set_key(key));
  graph->set_args(n, std::move(args));
}

Status run_reference(Job* job, const OverlapOptions& options, PassContext& context, Plan* plan, Outcome* out) {
  std::vector<Error>* refused = context.best_effort ? &plan->refused : nullptr;
  for (auto& program : job->programs) {
    plan->own.push_back(std::make_unique<Precedence>(*program, program->graph, OrderScope::job));
    SG_ASSIGN(ReferenceOrder reference, reference_order(*program, *plan->own.back(), refused));
    plan->orders.push_back(reference.order);
    plan->references.push_back(std::move(reference));
  }
  SG_ASSIGN(Attempt tried, apply(*job, *plan, nullptr));
  if (options.dense_fsdp) {
    SG_ASSIGN(plan->dense, schedule_dense(&tried.job, refused));
  }
  if (const std::string parted = disagreement(&tried.job, context.threads); !parted.empty()) {
    context.notes->warning("overlap", "ranks would not agree on their collectives: " + parted);
    out->why = "ranks would not agree on their collectives";
    return ok_status();
  }
  for (size_t p = 0; p < job->programs.size(); ++p) {
    Graph& graph = tried.job.programs[p]->graph;
    for (const auto& [place, value] : plan->references[p].copies)
      set_non_blocking(&graph, plan->precedence(p).node(place), value);
    for (uint32_t place : plan->references[p].exchange_waits) {
      NodeMeta meta = graph.meta(plan->precedence(p).node(place));
      meta.ep_step = EpStep::token_exchange_wait;
      graph.set_meta(plan->precedence(p).node(place), std::move(meta));
    }
  }
  *job = std::move(tried.job);
  out->kept = true;
  return ok_status();
}

// --- what is said ---

size_t moved_nodes(const Plan& plan) {
  size_t most = 0;
  for (const Order& order : plan.orders) {
    const std::vector<bool> stays = staying(order);
    most = std::max(most, static_cast<size_t>(std::count(stays.begin(), stays.end(), false)));
  }
  return most;
}

size_t regions_of(const Plan& plan) {
  if (plan.references.empty()) return 0;
  return static_cast<size_t>(
      std::ranges::count_if(plan.references[0].regions, [](const RegionPhases& r) { return r.skipped.empty(); }));
}

std::string figures_text(const Figures& before, const Figures& after) {
  return human_us(before.makespan_us) + " -> " + human_us(after.makespan_us) + " a step, peak " +
         human_bytes(static_cast<double>(before.peak_bytes)) + " -> " +
         human_bytes(static_cast<double>(after.peak_bytes));
}

std::string summary_of(const OverlapOptions& options, const Plan& plan, const Outcome& out, size_t moved) {
  if (!out.kept) return "unchanged, nothing to gain: " + out.why;
  std::string text = plural(moved, "node") + " moved";
  if (options.strategy == OverlapStrategy::reference) {
    const size_t regions = regions_of(plan);
    text = regions == 0 ? "nothing to order: no chunked region has token exchanges"
                        : text + " in " + plural(regions, "region");
    if (!plan.dense.empty())
      text = (regions == 0 ? std::string() : text + ", ") + plural(plan.dense.size(), "collective") +
             " launched in dense compute";
  }
  return out.measured ? text + ", " + figures_text(out.before, out.after) + " on " + options.machine : text;
}

void write_regions(JsonWriter* json, const std::vector<RegionPhases>& regions, std::string* text) {
  json->key("regions").begin_array();
  for (const RegionPhases& r : regions) {
    const std::string direction = r.is_backward ? "backward" : "forward";
    *text += r.region + " " + direction + ": " + (r.skipped.empty() ? r.phases : "left as it is: " + r.skipped) + "\n";
    json->begin_object().key("region").string(r.region).key("direction").string(direction);
    json->key(r.skipped.empty() ? "phases" : "skipped").string(r.skipped.empty() ? r.phases : r.skipped).end_object();
  }
  json->end_array();
}

std::string line_of(const MoveLine& m) {
  std::string out = m.kind + " %" + m.node + ": " + plural(static_cast<size_t>(std::abs(m.nodes)), "node") +
                    (m.nodes < 0 ? " earlier" : " later");
  if (m.before_us != m.after_us)
    out += ", compute stands still for " + human_us(m.before_us) + " -> " + human_us(m.after_us);
  return m.why.empty() ? out : out + "; " + m.why;
}

void write_moves(JsonWriter* json, const MoveReport& report, std::string* text) {
  json->key("moved").natural(report.moved).key("moves").begin_array();
  for (const MoveLine& m : report.lines) {
    *text += line_of(m) + "\n";
    json->begin_object().key("node").string(m.node).key("kind").string(m.kind).key("nodes").integer(m.nodes);
    if (m.kind == "wait") json->key("stall_us").begin_array().floating(m.before_us).floating(m.after_us).end_array();
    json->key("why").string(m.why).end_object();
  }
  json->end_array();
  if (report.moved > report.lines.size())
    *text += "and " + plural(report.moved - report.lines.size(), "node") + " that compute\n";
}

void explain_change(const Job& before, const Job& after, const OverlapOptions& options, const Plan& plan,
                    const Outcome& out, Change* change) {
  JsonWriter json;
  json.begin_object().key("strategy").string(options.strategy == OverlapStrategy::model ? "model" : "reference");
  json.key("kept").boolean(out.kept);
  if (out.measured) {
    json.key("machine").string(options.machine);
    json.key("makespan_us").begin_array().floating(out.before.makespan_us).floating(out.after.makespan_us).end_array();
    json.key("peak_bytes").begin_array().integer(out.before.peak_bytes).integer(out.after.peak_bytes).end_array();
  }
  const bool reference = !plan.references.empty();
  write_regions(&json, reference ? plan.references[0].regions : region_phases(after.programs[0]->graph), &change->plan);
  if (!plan.dense.empty()) {
    json.key("dense").begin_array();
    for (const DenseMove& m : plan.dense) json.string(m.what), change->plan += m.what + "\n";
    json.end_array();
  }
  if (out.kept)
    write_moves(&json, report_moves(before, *before.programs[0], plan.precedence(0), plan.costs(0), plan.orders[0]),
                &change->plan);
  change->plan_json += json.end_object().take();
}

}  // namespace

Result<Change> overlap(Job* job, const OverlapOptions& options, PassContext& context) {
  Job next(*job);
  PassContext quiet = context;
  quiet.explain = false;
  SG_ASSIGN(const Change isolated, isolate(&next, options.isolate, quiet));
  const bool was_isolated = !isolated.summary.starts_with("nothing");

  Outcome out;
  const bool model = options.strategy == OverlapStrategy::model;
  Result<Measure> measure = Measure::make(next, options);
  if (!measure.ok() && (measure.error().kind == ErrorKind::usage || measure.error().kind == ErrorKind::unreadable))
    return std::move(measure.error());
  if (!measure.ok() && model && !context.best_effort) return std::move(measure.error());
  Change change;
  if (!measure.ok() && model) {
    context.notes->warning("overlap", "left as it is: " + measure.error().message);
    change.summary = "unchanged: " + measure.error().message;
    return change;
  }
  if (measure.ok()) {
    SG_ASSIGN(out.before, measure->figures(*job));
    out.measured = true;
  }
  std::optional<Job> before;  // isolated, but in its own order
  if (context.explain) before.emplace(next);
  Plan plan;
  if (model) {
    SG_TRY(run_model(&next, was_isolated, options, context, *measure, &plan, &out));
  } else {
    SG_TRY(run_reference(&next, options, context, &plan, &out));
  }
  if (out.kept && out.measured && !model) {
    SG_ASSIGN(out.after, measure->figures(next));
  }
  if (!out.kept) out.after = out.before;
  if (options.peak_bytes != 0 && out.measured && out.after.peak_bytes > options.peak_bytes)
    context.notes->warning("overlap", "no order comes under --peak " +
                                          human_bytes(static_cast<double>(options.peak_bytes)) + ": the peak is " +
                                          human_bytes(static_cast<double>(out.after.peak_bytes)) +
                                          "; sg-remat --peak lowers it by computing again");
  for (const Error& error : plan.refused) context.notes->warning("overlap", error.where.path + ": " + error.message);
  const size_t moved = out.kept ? moved_nodes(plan) : 0;
  change.summary =
      (out.kept && was_isolated ? isolated.summary + "; " : std::string()) + summary_of(options, plan, out, moved);
  if (context.explain) explain_change(*before, out.kept ? next : *before, options, plan, out, &change);
  change.changed = out.kept && (model || moved + plan.dense.size() + regions_of(plan) > 0 || was_isolated);
  if (out.kept) *job = std::move(next);
  return change;
}

}  // namespace sg
