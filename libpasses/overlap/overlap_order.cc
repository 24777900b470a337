// sg-overlap for a job: finds an order for each program, and keeps it if the job is better for it and its ranks agree.
#include <algorithm>
#include <cassert>
#include <memory>

#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libpasses/agreement.h"
#include "libpasses/overlap/overlap_measure.h"
#include "libpasses/overlap/overlap_parts.h"

namespace sg {
namespace {

using namespace overlap_parts;

// Orders asked for, each with less memory, before one that plans for too much is given up.
constexpr int kPeakTries = 6;

// One order a program, and what belongs to it.
struct JobOrder {
  OrderScope scope = OrderScope::job;            // what the steps may count on
  std::vector<std::unique_ptr<Step>> steps;      // by program; model
  std::vector<std::unique_ptr<Precedence>> own;  // by program; reference
  std::vector<Order> by_program;
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

// The launches of a program in the order that `first` has chosen for its own, by group; launches of one index within
// their group are the same collective in all programs. Behind the groups comes a list of all launches: ranks that
// launch in one order never wait for each other in a circle, in several groups as little as in one.
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

void make_steps(const Job& job, const Measure& measure, OrderScope scope, JobOrder* out) {
  out->scope = scope;
  out->steps.clear();
  for (size_t p = 0; p < job.programs.size(); ++p)
    out->steps.push_back(std::make_unique<Step>(job, *job.programs[p], measure.values(p), measure.options(), scope));
}

// What has been asked of find_order, for one start and one limit: programs that differ in numbers alone ask the same.
class Asked {
 public:
  Order find(Step& step, const ModelLimits& limits, std::vector<Order> starts) {
    for (const Question& q : questions_)
      if (same_launches(q, limits) && q.starts == starts && q.step->same_question(step)) return *q.answer;
    questions_.push_back(
        {&step, limits.launches ? std::optional(*limits.launches) : std::nullopt, std::move(starts), {}});
    questions_.back().answer = find_order(step, limits, questions_.back().starts);
    return *questions_.back().answer;
  }

 private:
  struct Question {
    const Step* step;
    std::optional<Lists> launches;
    std::vector<Order> starts;
    std::optional<Order> answer;
  };
  static bool same_launches(const Question& q, const ModelLimits& limits) {
    return limits.launches ? q.launches && *q.launches == *limits.launches : !q.launches;
  }

  std::vector<Question> questions_;
};

// One order for each program; false when the programs cannot follow the first.
bool order_programs(const Job& job, OrderStart start, int64_t limit, PassContext& context, JobOrder* out) {
  out->by_program.clear();
  Asked asked;
  for (size_t p = 0; p < job.programs.size(); ++p) {
    ModelLimits limits{limit, start, nullptr};
    Lists launches;
    if (p > 0 && out->scope == OrderScope::job) {
      if (!translate(out->precedence(0), out->by_program[0], out->precedence(p), job.groups.size(), &launches))
        return false;
      limits.launches = &launches;
    }
    std::vector<Order> starts;
    if (out->scope == OrderScope::job && start == OrderStart::as_it_is) {
      std::vector<Error> refused;
      Result<ReferenceOrder> reference = reference_order(*job.programs[p], out->precedence(p), &refused);
      if (reference.ok() && !reference->exchange_waits.empty()) starts.push_back(std::move(reference->order));
    }
    out->by_program.push_back(asked.find(*out->steps[p], limits, std::move(starts)));
    if (context.progress && job.programs.size() > 1)
      context.progress(std::to_string(p + 1) + " of " + plural(job.programs.size(), "program") + " ordered");
    if (out->by_program.back().empty() && out->precedence(p).size() != 0) return false;
  }
  return true;
}

// The same; programs that cannot follow the first keep the rules that bind a rank alone.
void order_or_part(const Job& job, const Measure& measure, OrderStart start, int64_t limit, PassContext& context,
                   JobOrder* out) {
  if (order_programs(job, start, limit, context, out) || out->scope == OrderScope::rank) return;
  make_steps(job, measure, OrderScope::rank, out);
  [[maybe_unused]] const bool found = order_programs(job, start, limit, context, out);
  assert(found);  // alone, each rank can keep its own rules
}

bool is_identity(const Order& order) { return std::ranges::is_sorted(order); }

// A copy of the job in these orders. An Error is a bug of ours: an order that breaks a rule.
Result<Job> reordered(const Job& job, const JobOrder& orders) {
  Job out(job);
  for (size_t p = 0; p < job.programs.size(); ++p) {
    const Precedence& precedence = orders.precedence(p);
    if (const std::string why = wrong_order(job, *job.programs[p], precedence, orders.by_program[p]); !why.empty())
      return Error{ErrorKind::internal, "sg-overlap made an invalid order: " + why};
    apply_order(&out.programs[p]->graph, precedence, orders.by_program[p]);
  }
  return out;
}

// What becomes of the job.
struct Verdict {
  Figures before, after;
  bool measured = false;
  bool kept = false;
  std::string why;  // not kept
};

// A job in other orders; `parted`: why its ranks would not get on with each other.
struct Attempt {
  Job job;
  Figures figures;
  std::string parted;
};

Result<Attempt> attempt(const Job& job, const JobOrder& orders, const Measure& measure, size_t threads) {
  SG_ASSIGN(Job next, reordered(job, orders));
  Attempt out{std::move(next), {}, {}};
  Result<Figures> figures = measure.figures(out.job);
  if (figures.ok()) out.figures = *figures;
  out.parted = figures.ok() ? disagreement(job, &out.job, threads) : figures.error().message;
  return out;
}

// A job in orders that are worth it.
struct FoundOrders {
  Job job;
  Figures figures;
  JobOrder orders;
};

// The best orders from one start that the plan, too, finds within the limit; none if they are no gain.
Result<std::optional<FoundOrders>> search(const Job& job, bool isolated, OrderStart start, const PeakLimit& limit,
                                          const Measure& measure, PassContext& context) {
  JobOrder orders;
  make_steps(job, measure, OrderScope::job, &orders);
  int64_t asked = limit.bytes();
  for (int tries = 1; tries <= kPeakTries; ++tries) {
    order_or_part(job, measure, start, asked, context, &orders);
    if (!isolated && std::ranges::all_of(orders.by_program, is_identity)) break;
    SG_ASSIGN(Attempt tried, attempt(job, orders, measure, context.threads));
    if (!tried.parted.empty() && orders.scope == OrderScope::rank) {
      context.notes->warning("overlap", "ranks would not agree on their collectives: " + tried.parted);
      break;
    }
    if (!tried.parted.empty()) {
      make_steps(job, measure, OrderScope::rank, &orders);
    } else if (const int64_t over = limit.bytes_over(tried.figures); over > 0) {
      asked -= over * tries;  // packing costs something, and not always the same
    } else if (limit.is_gain(tried.figures)) {
      return std::optional<FoundOrders>({std::move(tried.job), tried.figures, std::move(orders)});
    } else {
      break;
    }
  }
  return std::optional<FoundOrders>();
}

// From each start by itself: what looks best to the search may be above the limit once it is planned, and would then
// stand in the way of what another start has found.
Status run_model(Job* job, bool isolated, const OverlapOptions& options, PassContext& context, const Measure& measure,
                 JobOrder* orders, Verdict* out) {
  const PeakLimit limit(options.peak_bytes, out->before);
  std::optional<FoundOrders> best;
  for (OrderStart start : {OrderStart::as_it_is, OrderStart::launched_early}) {
    SG_ASSIGN(std::optional<FoundOrders> found, search(*job, isolated, start, limit, measure, context));
    if (found && (!best || limit.is_better(found->figures, best->figures))) best = std::move(found);
  }
  if (!best) {
    out->why = "no order was found that is shorter than " + human_time(out->before.makespan_us * 1e-6) + " on " +
               options.machine + " within " + human_bytes(static_cast<double>(limit.bytes()));
    return ok_status();
  }
  *job = std::move(best->job);
  *orders = std::move(best->orders);
  out->after = best->figures;
  out->kept = true;
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

Status run_reference(Job* job, const OverlapOptions& options, PassContext& context, JobOrder* orders, Verdict* out) {
  std::vector<Error>* refused = context.best_effort ? &orders->refused : nullptr;
  for (auto& program : job->programs) {
    orders->own.push_back(std::make_unique<Precedence>(*program, program->graph, OrderScope::job));
    SG_ASSIGN(ReferenceOrder reference, reference_order(*program, *orders->own.back(), refused));
    orders->by_program.push_back(reference.order);
    orders->references.push_back(std::move(reference));
  }
  SG_ASSIGN(Job next, reordered(*job, *orders));
  if (options.dense_fsdp) {
    SG_ASSIGN(orders->dense, schedule_dense(&next, refused));
  }
  if (const std::string parted = disagreement(*job, &next, context.threads); !parted.empty()) {
    context.notes->warning("overlap", "ranks would not agree on their collectives: " + parted);
    out->why = "ranks would not agree on their collectives";
    return ok_status();
  }
  for (size_t p = 0; p < job->programs.size(); ++p) {
    Graph& graph = next.programs[p]->graph;
    for (const auto& [place, value] : orders->references[p].copies)
      set_non_blocking(&graph, orders->precedence(p).node(place), value);
    for (uint32_t place : orders->references[p].exchange_waits) {
      NodeMeta meta = graph.meta(orders->precedence(p).node(place));
      meta.ep_step = EpStep::token_exchange_wait;
      graph.set_meta(orders->precedence(p).node(place), std::move(meta));
    }
  }
  *job = std::move(next);
  out->kept = true;
  return ok_status();
}

// --- what is said ---

size_t moved_nodes(const JobOrder& orders) {
  size_t most = 0;
  for (const Order& order : orders.by_program) {
    const std::vector<bool> stays = staying(order);
    most = std::max(most, static_cast<size_t>(std::count(stays.begin(), stays.end(), false)));
  }
  return most;
}

size_t regions_of(const JobOrder& orders) {
  if (orders.references.empty()) return 0;
  return static_cast<size_t>(
      std::ranges::count_if(orders.references[0].regions, [](const RegionPhases& r) { return r.skipped.empty(); }));
}

std::string figures_text(const Figures& before, const Figures& after) {
  return human_time(before.makespan_us * 1e-6) + " -> " + human_time(after.makespan_us * 1e-6) + " a step, peak " +
         human_bytes(static_cast<double>(before.peak_bytes)) + " -> " +
         human_bytes(static_cast<double>(after.peak_bytes));
}

std::string summary_of(const OverlapOptions& options, const JobOrder& orders, const Verdict& out, size_t moved) {
  if (!out.kept) return "unchanged, nothing to gain: " + out.why;
  std::string text = plural(moved, "node") + " moved";
  if (options.strategy == OverlapStrategy::reference) {
    const size_t regions = regions_of(orders);
    text = regions == 0 ? "nothing to order: no chunked region has token exchanges"
                        : text + " in " + plural(regions, "region");
    if (!orders.dense.empty())
      text = (regions == 0 ? std::string() : text + ", ") + plural(orders.dense.size(), "collective") +
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
    out += ", compute stands still for " + human_time(m.before_us * 1e-6) + " -> " + human_time(m.after_us * 1e-6);
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

void explain_change(const Job& before, const Job& after, const OverlapOptions& options, const JobOrder& orders,
                    const Verdict& out, Change* change) {
  JsonWriter json;
  json.begin_object().key("strategy").string(options.strategy == OverlapStrategy::model ? "model" : "reference");
  json.key("kept").boolean(out.kept);
  if (out.measured) {
    json.key("machine").string(options.machine);
    json.key("makespan_us").begin_array().floating(out.before.makespan_us).floating(out.after.makespan_us).end_array();
    json.key("peak_bytes").begin_array().integer(out.before.peak_bytes).integer(out.after.peak_bytes).end_array();
  }
  const bool reference = !orders.references.empty();
  write_regions(&json, reference ? orders.references[0].regions : region_phases(after.programs[0]->graph),
                &change->plan);
  if (!orders.dense.empty()) {
    json.key("dense").begin_array();
    for (const DenseMove& m : orders.dense) json.string(m.what), change->plan += m.what + "\n";
    json.end_array();
  }
  if (out.kept)
    write_moves(&json,
                report_moves(before, *before.programs[0], orders.precedence(0), orders.costs(0), orders.by_program[0]),
                &change->plan);
  change->plan_json += json.end_object().take();
}

}  // namespace

Result<Change> overlap(Job* job, const OverlapOptions& options, PassContext& context) {
  Job next(*job);
  const Isolation isolation = isolate_traffic(&next, options.isolate);
  const bool was_isolated = !isolation.moves.empty();

  Verdict out;
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
  JobOrder orders;
  if (model) {
    SG_TRY(run_model(&next, was_isolated, options, context, *measure, &orders, &out));
  } else {
    SG_TRY(run_reference(&next, options, context, &orders, &out));
  }
  if (out.kept && out.measured && !model) {
    SG_ASSIGN(out.after, measure->figures(next));
  }
  if (!out.kept) out.after = out.before;
  if (options.peak_bytes != 0 && out.measured && out.after.peak_bytes > options.peak_bytes)
    context.notes->warning("overlap", "no order comes under --peak " +
                                          human_bytes(static_cast<double>(options.peak_bytes)) + ": the peak is " +
                                          human_bytes(static_cast<double>(out.after.peak_bytes)) +
                                          "; sg-remat --peak lowers it by recomputing values");
  for (const Error& error : orders.refused) context.notes->warning("overlap", error.where.path + ": " + error.message);
  const size_t moved = out.kept ? moved_nodes(orders) : 0;
  change.summary =
      (out.kept && was_isolated ? isolation.summary + "; " : std::string()) + summary_of(options, orders, out, moved);
  if (context.explain) explain_change(*before, out.kept ? next : *before, options, orders, out, &change);
  change.changed = out.kept && (model || moved + orders.dense.size() + regions_of(orders) > 0 || was_isolated);
  if (out.kept) *job = std::move(next);
  return change;
}

}  // namespace sg
