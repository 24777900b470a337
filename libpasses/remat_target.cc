#include "libpasses/remat_target.h"

#include <algorithm>
#include <cmath>

#include "libgraph/human.h"
#include "libgraph/plan.h"
#include "libpasses/remat_apply.h"
#include "libpasses/remat_report.h"

namespace sg {
namespace {

constexpr size_t kWork = 8000000;            // node visits of the model: about half a second each time
constexpr int kMostPlans = 4;                // until what is planned fits too

class TargetFinder {
 public:
  TargetFinder(const Job& job, size_t which, RematModel* model, const std::vector<uint8_t>& allowed)
      : job_(job), which_(which), model_(*model), allowed_(allowed), chooser_(model, allowed, kWork) {}

  Result<TargetChoice> find(const RematTarget& asked) {
    out_.bound = model_.bound(allowed_);
    if (asked.peak_bytes) out_.target_bytes = *asked.peak_bytes;
    else if (*asked.budget <= 0) return take_least();
    else if (*asked.budget >= 1) return take_none();
    else out_.target_bytes = between(*asked.budget);
    return find_below();
  }

 private:
  const Program& program() const { return *job_.programs[which_]; }

  // What the arena would be: of the plan, not of the model.
  int64_t plan(const RematDecision& decision) {
    const size_t chosen[] = {which_};
    Job trial(job_, chosen);
    apply_remat(model_, model_.place(decision), &trial.programs[0]->graph);
    return planned_peak(*trial.programs[0]);
  }

  int64_t kept_peak() {
    if (!kept_) kept_ = planned_peak(program());
    return *kept_;
  }

  int64_t least_peak() {
    if (!least_) least_ = plan(chooser_.least().decision);
    return *least_;
  }

  int64_t between(double budget) {
    const int64_t most = kept_peak(), least = std::min(least_peak(), most);
    return least + static_cast<int64_t>(std::llround(budget * static_cast<double>(most - least)));
  }

  Result<TargetChoice> take_none() {
    out_.decision = chooser_.none().decision;
    out_.target_bytes = kept_peak();
    return std::move(out_);
  }

  Result<TargetChoice> take_least() {
    if (least_peak() >= kept_peak()) return take_none();
    out_.decision = chooser_.least().decision;
    out_.target_bytes = least_peak();
    return std::move(out_);
  }

  Result<TargetChoice> find_below() {
    if (kept_peak() <= out_.target_bytes) return take_none();
    // The plan may need a little more than what is alive at once: then the model is asked for that much less.
    int64_t below = out_.target_bytes;
    for (int i = 0; i < kMostPlans; ++i) {
      std::optional<RematChoice> choice = chooser_.fit(below);
      if (!choice) break;
      const int64_t planned = plan(choice->decision);
      if (planned <= out_.target_bytes) {
        out_.decision = std::move(choice->decision);
        return std::move(out_);
      }
      below = std::min(below, choice->peak_bytes) - (planned - out_.target_bytes);
    }
    if (least_peak() > out_.target_bytes) return out_of_reach();
    out_.decision = chooser_.least().decision;
    return std::move(out_);
  }

  Error out_of_reach() {
    const int64_t least = std::min(least_peak(), kept_peak());
    return {ErrorKind::cannot_apply,
            "a peak of " + exact_bytes(out_.target_bytes) + " is out of reach: the lowest that was found is " + exact_bytes(least) +
                ", the lower bound " + exact_bytes(out_.bound.bytes),
            {{}, 0, 0, {}, place_of(program(), program().graph, model_.node(out_.bound.at))}, "at the bound " + held_text(model_, out_.bound)};
  }

  const Job& job_;
  size_t which_;
  RematModel& model_;
  const std::vector<uint8_t>& allowed_;
  RematChooser chooser_;
  TargetChoice out_;
  std::optional<int64_t> kept_, least_;
};

}  // namespace

Result<TargetChoice> choose_for(const Job& job, size_t which, RematModel* model, const std::vector<uint8_t>& allowed, const RematTarget& target) {
  return TargetFinder(job, which, model, allowed).find(target);
}

SizeValues captured_sizes(const Program& program) {
  return [&program](StrId s) { return program.find_symbol(s) ? program.find_symbol(s)->hint : std::nullopt; };
}

int64_t planned_peak(const Program& program) { return plan_memory(compute_liveness(program, program.graph, captured_sizes(program))).arena_bytes; }

}  // namespace sg
