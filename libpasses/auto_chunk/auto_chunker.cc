#include "libpasses/auto_chunk/auto_chunker.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/operands.h"
#include "libgraph/plan/liveness.h"
#include "libpasses/agreement.h"
#include "libpasses/auto_chunk/auto_chunk_rewrite.h"
#include "libpasses/planned_peak.h"

namespace sg {
namespace {

std::unique_ptr<Program> copy_of(const Program& program) {
  auto out = std::make_unique<Program>(&program.graph.pool());
  out->ranks = program.ranks, out->symbols = program.symbols, out->guards = program.guards;
  out->graph = Graph(program.graph, &program.graph.pool());
  for (const auto& nested : program.nested)
    out->nested.push_back(std::make_unique<Nested>(Nested{nested->name, Graph(nested->graph, &program.graph.pool())}));
  return out;
}

constexpr int64_t kShorter = 8;  // how much shorter than in the capture symbolic rows may be, where nobody says

// By node: the closer before the peak, the larger; 0 for nodes after the peak.
std::vector<size_t> nearness_to_peak(const Program& program) {
  std::vector<size_t> out(program.graph.node_id_limit(), 0);
  const Liveness live = compute_liveness(program, program.graph, assumed_sizes(program));
  for (size_t i = 0; i < live.schedule.size() && i <= live.peak_position; ++i) out[live.schedule[i].index] = i + 1;
  return out;
}

// By node: whether it is `from`, or takes what was made of it.
std::vector<bool> depends_on(const Graph& graph, NodeId from) {
  std::vector<bool> out(graph.node_id_limit(), false);
  for (NodeId n = from; n; n = graph.next(n)) {
    bool any = n == from;
    for_operands(graph, n, [&](ValueId v) {
      const NodeId def = graph.value(v).def;
      any = any || (def && out[def.index]);
    });
    out[n.index] = any;
  }
  return out;
}

}  // namespace

Result<Change> AutoChunker::run() {
  const int64_t before = planned_peak(job_);
  report_.start(job_, before);
  for (const auto& program : job_.programs)
    for (const Amplifier& a : find_amplifiers(*program, options_).layers) report_.add_layer(program->graph, a);
  if (options_.peak_bytes && before <= *options_.peak_bytes)
    return unchanged("the planned peak of " + human_bytes(double(before)) + " is within what was asked for");
  while (auto next = next_amplifier()) {
    SG_TRY(take(*next));
    if (options_.peak_bytes && planned_peak(job_) <= *options_.peak_bytes) break;
  }
  for (const Next& next : waiting_) skip(next, "it does not set the planned peak");
  const int64_t after = planned_peak(job_);
  if (options_.peak_bytes && after > *options_.peak_bytes)
    return Error{ErrorKind::cannot_apply,
                 "the planned peak stays at " + human_bytes(double(after)) + ", at %" + peak_of(job_).node + ", but " +
                     human_bytes(double(*options_.peak_bytes)) + " was requested",
                 {},
                 "sg-remat --peak lowers what is live besides the chunks"};
  if (done_ == 0) return unchanged(why_nothing(before));
  Change out;
  out.changed = true;
  out.summary = plural(done_, "amplifier") + " in chunks: " + summary_ + "; peak " + human_bytes(double(before)) +
                " -> " + human_bytes(double(after));
  if (context_.explain) report_.finish(job_, after, &out);
  return out;
}

Change AutoChunker::unchanged(std::string why) {
  Change out;
  out.summary = "nothing is chunked: " + why;
  if (context_.explain) report_.finish(job_, 0, &out);
  return out;
}

std::string AutoChunker::why_nothing(int64_t planned) const {
  if (!reasons_.empty()) return reasons_;
  if (seen_.empty())
    return options_.ratio ? "no forward node has an output over the ratio of its data inputs"
                          : "no forward node has an output over twice its data inputs and larger than " +
                                human_bytes(double(options_.min_output));
  return "the peak of " + human_bytes(double(planned)) + " is at %" + peak_of(job_).node;
}

// The largest amplifier. Of equal ones, if the peak decides, the last before the peak: that of the micro-batch which
// sets it. Keyed by label, so that programs of several ranks choose the same.
std::optional<AutoChunker::Next> AutoChunker::next_amplifier() {
  std::optional<Next> best;
  std::pair<int64_t, size_t> best_rank;
  for (const auto& program : job_.programs) {
    const std::vector<Amplifier> found = find_amplifiers(*program, options_).found;
    const std::vector<size_t> nearness =
        is_counted() || found.size() < 2 ? std::vector<size_t>() : nearness_to_peak(*program);
    for (const Amplifier& a : found) {
      const std::string label(program->graph.label(a.node));
      const std::pair rank(a.bytes, nearness.empty() ? 0 : nearness[a.node.index]);
      if (seen_.contains(label) || (best && best_rank >= rank)) continue;
      best = Next{label, a}, best_rank = rank;
    }
  }
  if (best) seen_.insert(best->label);
  return best;
}

// --- one amplifier ---

Status AutoChunker::take(const Next& next) {
  auto prepared = prepare(next);
  if (!prepared.ok()) return refused(next, std::move(prepared.error()));
  most_ = std::max(most_, prepared->most_chunks);
  if (!is_counted() && !sets_peak(*prepared)) {
    waiting_.push_back(next);
    return ok_status();
  }
  SG_ASSIGN(const int64_t chunks, choose(next, *prepared));
  if (chunks < 2) {
    stuck_ = stuck_ || !is_counted();
    skip(next, is_counted() ? "its rows make one chunk" : "no number of chunks lowers the planned peak");
    return ok_status();
  }
  report_.add_region(
      next.label, next.facts, prepared->job, prepared->plans, [&](int64_t n) { return predicted(*prepared, n); },
      chunks, context_.explain);
  SG_ASSIGN(Trial trial, outline(*prepared, chunks));
  if (auto why = why_ranks_part(next, *prepared, &trial.job)) return refused(next, std::move(*why));
  if (is_counted()) say_fewer(next, *prepared, trial.chunks);
  job_ = std::move(trial.job);
  for (const Next& waiting : waiting_) seen_.erase(waiting.label);
  waiting_.clear();
  summary_ += (done_++ == 0 ? "%" : ", %") + next.label + " " + std::to_string(trial.chunks) + " times " +
              plural(trial.counts.body_nodes, "node");
  return ok_status();
}

void AutoChunker::say_fewer(const Next& next, const Prepared& prepared, int64_t chunks) const {
  int64_t weight = 1;
  for (size_t i = 0; i < prepared.plans.size(); ++i)
    if (const auto& plan = prepared.plans[i])
      weight = plan->cut.weight(job_.pool->exprs, assumed_sizes(*prepared.job.programs[i]));
  if (options_.chunks ? prepared.rows >= *options_.chunks : weight <= *options_.rows_per_chunk) return;
  const std::string rows =
      weight > 1 ? plural(prepared.rows, "group") + " of " + plural(weight, "row") : plural(prepared.rows, "row");
  context_.notes->warning("chunk", "%" + next.label + ": its " + rows + " make " +
                                       plural(static_cast<uint64_t>(chunks), "chunk") +
                                       (options_.chunks ? ", not " + std::to_string(*options_.chunks)
                                                        : ", as no cut within one is proven, not chunks of " +
                                                              std::to_string(*options_.rows_per_chunk)));
}

// Checks that ranks agree on the chunks of collectives' operands, and on the order of collectives.
std::optional<Error> AutoChunker::why_ranks_part(const Next& next, const Prepared& prepared, Job* trial) const {
  const AutoPlan* first = nullptr;
  bool asks = false, alike = true;
  for (const auto& plan : prepared.plans) {
    asks = asks || (plan && plan->asks_ranks);
    if (plan && first == nullptr) first = &*plan;
  }
  if (!asks || job_.programs.size() == 1) return std::nullopt;
  for (const auto& plan : prepared.plans)
    alike = alike && plan && plan->rows() == first->rows() && plan->cut.axis == first->cut.axis &&
            plan->cut.unit == first->cut.unit && plan->cut.runs == first->cut.runs;
  std::string why = alike ? std::string() : "it is not cut alike on all ranks, which talk to each other in the chunks";
  if (alike) {
    const std::string what = disagreement(job_, trial, context_.threads);
    if (what.empty()) return std::nullopt;
    why = "ranks would not agree on their collectives: " + what;
  }
  const Program& program = *job_.programs[0];
  const NodeId n = program.graph.find_node(next.label);
  return Error{ErrorKind::cannot_apply,
               (n ? place_of(program, program.graph, n) : "%" + next.label) + ": [collective]: " + why,
               {},
               "--best-effort leaves the amplifier whole"};
}

void AutoChunker::skip(const Next& next, const std::string& why) {
  report_.add_skipped(next.label, next.facts, why);
  if (reasons_.empty()) reasons_ = "%" + next.label + ": " + why;
}

// A refusal is an error if the amplifier was asked for, unless best effort was given. Without a ratio, once others are
// chunked, it is only a warning, and the requested peak decides.
Status AutoChunker::refused(const Next& next, Error error) {
  if (is_asked_for(next)) {
    if (!context_.best_effort && (options_.ratio || done_ == 0)) return error;
    context_.notes->warning("chunk", "%" + next.label + " is left whole: " + error.message, error.where, {});
  }
  skip(next, error.message);
  return ok_status();
}

// Without a ratio: the largest amplifier, and any that sets the peak, by its result or by what is made of it.
bool AutoChunker::is_asked_for(const Next& next) const {
  if (options_.ratio) return true;
  if (is_counted()) return done_ == 0 && seen_.size() == 1;
  const int64_t peak = peak_of(job_).bytes;
  for (const auto& program : job_.programs) {
    const Graph& graph = program->graph;
    const NodeId amplifier = graph.find_node(next.label);
    const Liveness live = compute_liveness(*program, graph, assumed_sizes(*program));
    if (!amplifier || live.lower_bound_bytes < peak) continue;
    const std::vector<bool> made_of_it = depends_on(graph, amplifier);
    for (uint32_t i : live.live_at_peak) {
      const LiveStorage& s = live.storages[i];
      if (s.def && made_of_it[s.def.index] && s.bytes > next.facts.bytes / 2) return true;
    }
  }
  return false;
}

Result<AutoChunker::Prepared> AutoChunker::prepare(const Next& next) const {
  Prepared out{Job(job_), {}, INT64_MAX, INT64_MAX};
  for (auto& program : out.job.programs) {
    const NodeId n = program->graph.find_node(next.label);
    out.plans.emplace_back();
    if (!n) continue;
    if (auto shorter = copy_of(*program); ChunkRewriter(shorter.get()).leave_out_rows(n)) program = std::move(shorter);
    SG_ASSIGN(out.plans.back(), plan_at_some_axis(&program, n));
    const AutoPlan& plan = *out.plans.back();
    const ExprPool& exprs = program->graph.pool().exprs;
    const int64_t rows = exprs.evaluate(plan.rows(), assumed_sizes(*program)).value_or(2);
    const int64_t weight = plan.cut.weight(exprs, assumed_sizes(*program));
    const int64_t least = (options_.least_rows + weight - 1) / weight;
    int64_t most = rows / least;
    // A symbol gets a guard that there are as many rows as chunks: unasked, it leaves the step shorter sizes as well.
    const bool is_asked = is_counted() || options_.peak_bytes;
    if (!is_asked && !exprs.constant_value(plan.rows())) most = std::min(most, std::max<int64_t>(2, rows / kShorter));
    out.rows = std::min(out.rows, rows), out.most_chunks = std::min(out.most_chunks, most);
  }
  return out;
}

// The first axis for which all rules hold and that is long enough for the chunks; otherwise the longest.
Result<AutoPlan> AutoChunker::plan_at_some_axis(std::unique_ptr<Program>* program, NodeId amplifier) const {
  constexpr int64_t kUsualRows = 8;  // enough for the usual numbers of chunks, where none is given
  const std::vector<AutoCut> cuts = possible_cuts(**program, amplifier);
  std::optional<Error> refusal;  // from the plan that reached furthest
  size_t furthest = 0, reached = 0;
  std::optional<std::pair<int64_t, size_t>> longest;  // among those that are too short: rows, index of the cut
  for (size_t i = 0; i < cuts.size(); ++i) {
    auto copy = copy_of(**program);
    auto plan = plan_auto_chunk(copy.get(), amplifier, cuts[i], &reached);
    if (!plan.ok()) {
      if (!refusal || reached > furthest) refusal = std::move(plan.error()), furthest = reached;
      continue;
    }
    const ExprPool& exprs = copy->graph.pool().exprs;
    const SizeValues sizes = assumed_sizes(*copy);
    const auto rows = exprs.evaluate(cuts[i].rows, sizes);
    const bool is_coarse = options_.rows_per_chunk ? cuts[i].weight(exprs, sizes) > *options_.rows_per_chunk
                                                   : rows && *rows < options_.chunks.value_or(kUsualRows);
    if (rows && is_coarse) {
      if (!longest || *rows > longest->first) longest = {*rows, i};
      continue;
    }
    *program = std::move(copy);
    return plan;
  }
  if (longest) return plan_auto_chunk(program->get(), amplifier, cuts[longest->second], &reached);
  if (refusal) return std::move(*refusal);
  return Error{ErrorKind::cannot_apply,
               place_of(**program, (*program)->graph, amplifier) +
                   ": no axis rule cuts its result along an axis of the data that it takes",
               {},
               "--best-effort leaves it whole"};
}

// --rows-per-chunk in rows of the plan's cut.
int64_t AutoChunker::rows_of_chunk(const AutoPlan& plan, const Program& program) const {
  const int64_t weight = plan.cut.weight(program.graph.pool().exprs, assumed_sizes(program));
  return std::max<int64_t>(1, *options_.rows_per_chunk / weight);
}

// Whether values of the amplifier's size that would be chunked are live at the peak.
bool AutoChunker::sets_peak(const Prepared& prepared) const {
  const Peak peak = peak_of(job_);
  for (size_t i = 0; i < prepared.plans.size(); ++i) {
    if (!prepared.plans[i]) continue;
    const AutoPlan& plan = *prepared.plans[i];
    const Program& before = *job_.programs[i];
    const Program& program = *prepared.job.programs[i];
    const Liveness live = compute_liveness(before, before.graph, assumed_sizes(before));
    if (live.lower_bound_bytes < peak.bytes) continue;
    for (uint32_t at : live.live_at_peak) {
      const NodeId def = program.graph.find_node(before.graph.label(live.storages[at].def));
      if (!def) return true;  // preparing its region rewrote it
      if (!plan.is_body[def.index]) continue;
      for (uint32_t r = 0; r < program.graph.node(def).result_count; ++r) {
        const Type& type = program.graph.type(program.graph.node(def).result(r));
        const auto count = element_count(program.graph.pool(), type, assumed_sizes(program));
        if (count.value_or(0) > plan.elements / 2) return true;
      }
    }
  }
  return false;
}

Result<AutoChunker::Trial> AutoChunker::outline(const Prepared& prepared, int64_t chunks) const {
  Trial out{Job(prepared.job), 0, {}};
  for (size_t i = 0; i < prepared.plans.size(); ++i) {
    if (!prepared.plans[i]) continue;
    ExprPool& exprs = out.job.pool->exprs;
    const AutoPlan& plan = *prepared.plans[i];
    const AutoCuts cuts = options_.rows_per_chunk
                              ? cut_by(&exprs, plan.rows(), rows_of_chunk(plan, *out.job.programs[i]), chunks)
                              : cut_into(&exprs, plan.rows(), chunks);
    SG_ASSIGN(out.counts, outline_auto_chunk(out.job.programs[i].get(), plan, cuts, options_.sums_in_f32));
    out.chunks = static_cast<int64_t>(cuts.sizes.size());
  }
  return out;
}

}  // namespace sg
