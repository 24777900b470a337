// Strategy model for a job: an order for each program from several starts, as long as the ranks agree and the plan
// stays within the limit.
#include <algorithm>
#include <cassert>

#include "libgraph/base/human.h"
#include "libpasses/agreement.h"
#include "libpasses/overlap/overlap_job.h"

namespace sg::overlap_parts {
namespace {

// Orders asked for, each with less memory, before one that plans for too much is given up.
constexpr int kPeakTries = 6;

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

}  // namespace

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

}  // namespace sg::overlap_parts
