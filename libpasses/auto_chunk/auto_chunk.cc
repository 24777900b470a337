#include "libpasses/auto_chunk/auto_chunk.h"

#include <algorithm>
#include <set>

#include "libgraph/cost.h"
#include "libgraph/expr/symbols.h"
#include "libgraph/human.h"
#include "libgraph/plan/liveness.h"
#include "libpasses/agreement.h"
#include "libpasses/auto_chunk/amplifiers.h"
#include "libpasses/auto_chunk/auto_chunk_outline.h"
#include "libpasses/auto_chunk/auto_chunk_plan.h"
#include "libpasses/auto_chunk/auto_chunk_report.h"
#include "libpasses/planned_peak.h"

namespace sg {
namespace {

// Peak live bytes of a job: the maximum over its programs.
struct Peak {
  int64_t bytes = 0;
  std::string node;
  bool at_call = false;  // of a chunk
};

Peak peak_of(const Job& job) {
  Peak out;
  for (const auto& program : job.programs) {
    const Graph& graph = program->graph;
    const Liveness live = compute_liveness(*program, graph, assumed_sizes(*program));
    if (live.lower_bound_bytes <= out.bytes || live.schedule.empty()) continue;
    const NodeId n = live.schedule[live.peak_position];
    const StrId role = graph.meta(n).chunk.role;
    out = {live.lower_bound_bytes, std::string(graph.label(n)),
           !role.is_none() && graph.pool().strings[role] == "call"};
  }
  return out;
}

// An amplifier planned in each program that has it, and the job rewritten for it.
struct Prepared {
  Job job;
  std::vector<std::optional<AutoPlan>> plans;  // by program
  int64_t most_chunks = 0;                     // for the sizes of the capture
};

class AutoChunker {
 public:
  AutoChunker(Job* job, const AutoChunkOptions& options, PassContext& context)
      : job_(*job), options_(options), context_(context) {}

  Result<Change> run() {
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
    const int64_t after = planned_peak(job_);
    if (options_.peak_bytes && after > *options_.peak_bytes)
      return Error{ErrorKind::cannot_apply,
                   "the planned peak stays at " + human_bytes(double(after)) + ", at %" + peak_of(job_).node +
                       ", and " + human_bytes(double(*options_.peak_bytes)) + " were asked for",
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

 private:
  struct Next {
    std::string label;
    Amplifier facts;
  };

  Change unchanged(std::string why) {
    Change out;
    out.summary = "nothing is chunked: " + why;
    if (context_.explain) report_.finish(job_, 0, &out);
    return out;
  }

  std::string why_nothing(int64_t planned) const {
    if (!reasons_.empty()) return reasons_;
    if (found_ == 0)
      return options_.ratio ? "no forward node makes more than the ratio of what it takes"
                            : "no forward node makes more than twice the data it takes, in more than " +
                                  human_bytes(double(options_.min_output));
    return "the peak of " + human_bytes(double(planned)) + " is at %" + peak_of(job_).node;
  }

  // Keyed by label, so that programs of several ranks choose the same.
  std::optional<Next> next_amplifier() {
    std::optional<Next> best;
    for (const auto& program : job_.programs)
      for (const Amplifier& a : find_amplifiers(*program, options_).found) {
        const std::string label(program->graph.label(a.node));
        if (seen_.contains(label) || (best && best->facts.bytes >= a.bytes)) continue;
        best = Next{label, a};
      }
    if (best) seen_.insert(best->label), ++found_;
    return best;
  }

  // --- one amplifier ---

  Status take(const Next& next) {
    auto prepared = prepare(next);
    if (!prepared.ok()) return refused(next, std::move(prepared.error()));
    if (!options_.chunks && !options_.rows_per_chunk && !sets_peak(*prepared))
      return skip(next, "it does not set the planned peak");
    SG_ASSIGN(const int64_t chunks, choose(next, *prepared));
    if (chunks < 2)
      return skip(next, options_.chunks || options_.rows_per_chunk ? "its rows make one chunk"
                                                                   : "no number of chunks lowers the planned peak");
    report_.add_region(
        next.label, next.facts, prepared->job, prepared->plans, [&](int64_t n) { return predicted(*prepared, n); },
        chunks, context_.explain);
    SG_ASSIGN(Trial trial, outline(*prepared, chunks));
    if (auto why = parted(next, *prepared, &trial.job)) return refused(next, std::move(*why));
    job_ = std::move(trial.job);
    summary_ += (done_++ == 0 ? "%" : ", %") + next.label + " " + std::to_string(trial.chunks) + " times " +
                plural(trial.counts.body_nodes, "node");
    return ok_status();
  }

  // Checks that ranks agree: on the chunks of what they communicate, and on the order of collectives.
  std::optional<Error> parted(const Next& next, const Prepared& prepared, Job* trial) const {
    const AutoPlan* first = nullptr;
    bool asks = false, alike = true;
    for (const auto& plan : prepared.plans) {
      asks = asks || (plan && plan->asks_ranks);
      if (plan && first == nullptr) first = &*plan;
    }
    if (!asks || job_.programs.size() == 1) return std::nullopt;
    for (const auto& plan : prepared.plans)
      alike = alike && plan && plan->rows() == first->rows() && plan->cut.axis == first->cut.axis &&
              plan->cut.unit == first->cut.unit;
    std::string why =
        alike ? std::string() : "it is not cut alike on all ranks, which talk to each other in the chunks";
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

  Status skip(const Next& next, const std::string& why) {
    report_.add_skipped(next.label, next.facts, why);
    if (reasons_.empty()) reasons_ = "%" + next.label + ": " + why;
    return ok_status();
  }

  // A refusal is an error if the amplifier was asked for, unless best effort was given. Without a ratio, if others are
  // chunked already, it is a warning, and the requested peak decides.
  Status refused(const Next& next, Error error) {
    if (!asked_for(next)) return skip(next, error.message);
    if (!context_.best_effort && (options_.ratio || done_ == 0)) return error;
    context_.notes->warning("chunk", "%" + next.label + " is left whole: " + error.message, error.where, {});
    return skip(next, error.message);
  }

  // Without a ratio, selects the largest amplifier and any that is live at the peak.
  bool asked_for(const Next& next) const {
    if (options_.ratio) return true;
    if (options_.chunks || options_.rows_per_chunk) return done_ == 0 && found_ == 1;
    for (const auto& program : job_.programs) {
      const Liveness live = compute_liveness(*program, program->graph, assumed_sizes(*program));
      for (uint32_t i : live.live_at_peak)
        if (program->graph.label(live.storages[i].def) == next.label) return true;
    }
    return false;
  }

  Result<Prepared> prepare(const Next& next) {
    Prepared out{Job(job_), {}, INT64_MAX};
    for (auto& program : out.job.programs) {
      const NodeId n = program->graph.find_node(next.label);
      out.plans.emplace_back();
      if (!n) continue;
      SG_ASSIGN(out.plans.back(), plan_at_some_axis(&program, n));
      const AutoPlan& plan = *out.plans.back();
      const auto rows = program->graph.pool().exprs.evaluate(plan.rows(), assumed_sizes(*program));
      out.most_chunks = std::min(out.most_chunks, rows.value_or(2) / options_.least_rows);
    }
    return out;
  }

  // The first axis along which all rules hold and that is long enough for the chunks; else the longest.
  Result<AutoPlan> plan_at_some_axis(std::unique_ptr<Program>* program, NodeId amplifier) {
    const std::vector<AutoCut> cuts = possible_cuts(**program, amplifier);
    std::optional<Error> refusal;  // the one that came furthest
    size_t furthest = 0, reached = 0;
    std::optional<std::pair<int64_t, size_t>> longest;  // of those that are too short: rows, which
    for (size_t i = 0; i < cuts.size(); ++i) {
      auto copy = copy_of(**program);
      auto plan = plan_auto_chunk(copy.get(), amplifier, cuts[i], &reached);
      if (!plan.ok()) {
        if (!refusal || reached > furthest) refusal = std::move(plan.error()), furthest = reached;
        continue;
      }
      const auto rows = copy->graph.pool().exprs.constant_value(cuts[i].rows);
      if (rows && *rows < options_.chunks.value_or(2)) {
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

  static std::unique_ptr<Program> copy_of(const Program& program) {
    auto out = std::make_unique<Program>(&program.graph.pool());
    out->ranks = program.ranks, out->symbols = program.symbols, out->guards = program.guards;
    out->graph = Graph(program.graph, &program.graph.pool());
    for (const auto& nested : program.nested)
      out->nested.push_back(
          std::make_unique<Nested>(Nested{nested->name, Graph(nested->graph, &program.graph.pool())}));
    return out;
  }

  // Whether chunked values of the amplifier's size are among what lives at the peak.
  bool sets_peak(const Prepared& prepared) const {
    const Peak peak = peak_of(prepared.job);
    for (size_t i = 0; i < prepared.plans.size(); ++i) {
      if (!prepared.plans[i]) continue;
      const AutoPlan& plan = *prepared.plans[i];
      const Program& program = *prepared.job.programs[i];
      const Liveness live = compute_liveness(program, program.graph, assumed_sizes(program));
      if (live.lower_bound_bytes < peak.bytes) continue;
      for (uint32_t at : live.live_at_peak) {
        const ValueId v = live.storages[at].owner;
        const NodeId def = program.graph.value(v).def;
        const int64_t count =
            element_count(program.graph.pool(), program.graph.type(v), assumed_sizes(program)).value_or(0);
        if (def && plan.is_body[def.index] && count > plan.elements / 2) return true;
      }
    }
    return false;
  }

  // --- how many ---

  struct Trial {
    Job job;
    int64_t chunks = 0;
    AutoCounts counts;
  };

  Result<Trial> outline(const Prepared& prepared, int64_t chunks) const {
    Trial out{Job(prepared.job), 0, {}};
    for (size_t i = 0; i < prepared.plans.size(); ++i) {
      if (!prepared.plans[i]) continue;
      ExprPool& exprs = out.job.pool->exprs;
      const AutoPlan& plan = *prepared.plans[i];
      const AutoCuts cuts = options_.rows_per_chunk ? cut_by(&exprs, plan.rows(), *options_.rows_per_chunk, chunks)
                                                    : cut_into(&exprs, plan.rows(), chunks);
      SG_ASSIGN(out.counts, outline_auto_chunk(out.job.programs[i].get(), plan, cuts, options_.sums_in_f32));
      out.chunks = static_cast<int64_t>(cuts.sizes.size());
    }
    return out;
  }

  std::optional<int64_t> predicted(const Prepared& prepared, int64_t chunks) const {
    auto trial = outline(prepared, chunks);
    if (!trial.ok()) return std::nullopt;
    return planned_peak(trial->job);
  }

  // Rows of the last chunk are no fewer than --min-rows.
  Result<int64_t> choose(const Next& next, const Prepared& prepared) const {
    const auto few = [&](int64_t n) {
      return Error{ErrorKind::cannot_apply,
                   "%" + next.label + ": " + std::to_string(n) + " chunks have fewer than " +
                       std::to_string(options_.least_rows) + " rows",
                   {},
                   "fewer chunks"};
    };
    if (options_.rows_per_chunk) {
      SG_ASSIGN(const int64_t n, chunks_by_rows(next, prepared));
      return *options_.rows_per_chunk < options_.least_rows ? Result<int64_t>(few(n)) : Result<int64_t>(n);
    }
    if (options_.chunks) {
      const int64_t n = std::min(*options_.chunks, prepared.most_chunks * options_.least_rows);
      return n > prepared.most_chunks && options_.least_rows > 1 ? Result<int64_t>(few(n)) : Result<int64_t>(n);
    }
    return fewest(prepared);
  }

  // The number of chunks for --rows-per-chunk. Rows may be symbolic if their whole range gives one number.
  Result<int64_t> chunks_by_rows(const Next& next, const Prepared& prepared) const {
    const int64_t each = *options_.rows_per_chunk;
    const auto chunks_of = [&](int64_t rows) { return std::max<int64_t>(rows, 1) / each + (rows % each > 0 ? 1 : 0); };
    std::optional<int64_t> out;
    for (size_t i = 0; i < prepared.plans.size(); ++i) {
      if (!prepared.plans[i]) continue;
      const Program& program = *prepared.job.programs[i];
      const ExprPool& exprs = program.graph.pool().exprs;
      const Expr rows = prepared.plans[i]->rows();
      const Interval range = Facts(program).range(rows);
      const int64_t least = chunks_of(std::max<int64_t>(range.min, 1));
      if (!range.has_max() || chunks_of(range.max) != least) {
        const auto captured = exprs.evaluate(rows, assumed_sizes(program));
        return Error{ErrorKind::cannot_apply,
                     "%" + next.label + ": of " + exprs.print(rows) + " rows, " + print(range) +
                         ", it is unknown how many chunks of " + std::to_string(each) +
                         " they make: " + std::to_string(least) + " to " +
                         (range.has_max() ? std::to_string(chunks_of(range.max)) : "any number"),
                     {},
                     "--chunks " +
                         (captured ? std::to_string(chunks_of(*captured)) + ", as at the sizes of the capture"
                                   : std::string("N")) +
                         "; or numbers for the sizes before: sg-concretize"};
      }
      if (out && *out != least)
        return Error{ErrorKind::cannot_apply,
                     "%" + next.label + ": ranks would have " + std::to_string(*out) + " and " + std::to_string(least) +
                         " chunks of " + std::to_string(each) + " rows",
                     {},
                     "--chunks N cuts all alike"};
      out = least;
    }
    return out.value_or(1);
  }

  // Doubles the number of chunks until it suffices, then bisects. If none does, returns the fewest within 1 % of the
  // lowest peak; 1 = none lowers it.
  Result<int64_t> fewest(const Prepared& prepared) const {
    constexpr int64_t kManyChunks = 64;  // beyond them a doubling must be worth it
    const int64_t before = measured(prepared.job).bytes;
    std::vector<std::pair<int64_t, int64_t>> tried{{1, before}};
    for (;;) {
      const auto [low, last] = tried.back();
      const int64_t high = std::min(low * 2, prepared.most_chunks);
      if (high <= low) break;
      SG_ASSIGN(const Peak peak, peak_with(prepared, high));
      if (is_enough(peak)) {
        SG_ASSIGN(const int64_t chunks, fewest_between(prepared, low, high));
        return options_.peak_bytes || peak.bytes < before ? chunks : 1;
      }
      if (!options_.peak_bytes && high > kManyChunks && peak.bytes > last - last / 100) break;
      tried.emplace_back(high, peak.bytes);
    }
    const int64_t least = std::ranges::min(tried, {}, &std::pair<int64_t, int64_t>::second).second;
    return std::ranges::find_if(tried, [&](const auto& t) { return t.second <= least + least / 100; })->first;
  }

  // REQUIRES: `high` chunks are enough, and `low` are not
  Result<int64_t> fewest_between(const Prepared& prepared, int64_t low, int64_t high) const {
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      SG_ASSIGN(const Peak peak, peak_with(prepared, middle));
      (is_enough(peak) ? high : low) = middle;
    }
    return high;
  }

  Result<Peak> peak_with(const Prepared& prepared, int64_t chunks) const {
    SG_ASSIGN(const Trial trial, outline(prepared, chunks));
    return measured(trial.job);
  }

  // A limit applies to the planned arena; to compare numbers of chunks, peak live bytes tell as much at less cost.
  Peak measured(const Job& job) const {
    Peak out = peak_of(job);
    if (options_.peak_bytes) out.bytes = planned_peak(job);
    return out;
  }

  bool is_enough(const Peak& peak) const {
    return options_.peak_bytes ? peak.bytes <= *options_.peak_bytes || !peak.at_call : !peak.at_call;
  }

  Job& job_;
  const AutoChunkOptions& options_;
  PassContext& context_;
  AutoChunkReport report_;
  std::set<std::string> seen_;
  size_t found_ = 0, done_ = 0;
  std::string summary_, reasons_;
};

}  // namespace

Result<Change> auto_chunk(Job* job, const AutoChunkOptions& options, PassContext& context) {
  return AutoChunker(job, options, context).run();
}

}  // namespace sg
