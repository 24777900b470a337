#include "libpasses/remat/remat_target.h"

#include <algorithm>
#include <cmath>

#include "libgraph/human.h"
#include "libpasses/planned_peak.h"
#include "libpasses/remat/remat_apply.h"
#include "libpasses/remat/remat_report.h"

namespace sg {
namespace {

constexpr size_t kWork = 8000000;  // node visits of the model: some tenths of a second each time
constexpr int kMostPlans = 4;      // attempts until the plan fits too

class TargetFinder {
 public:
  explicit TargetFinder(const TargetQuestion& asked)
      : asked_(asked),
        model_(*asked.model),
        chooser_(asked.model,
                 {asked.allowed, asked.crossing, asked.starts, kWork, asked.by_tags_alone, asked.threads}) {}

  TargetChoice find() {
    const RematTarget& asked = asked_.target;
    std::vector<uint8_t> open = asked_.allowed;
    for (size_t at = 0; at < asked_.crossing.size(); ++at) open[at] |= asked_.crossing[at];
    out_.bound = model_.bound(open);
    out_.kept_bytes = kept_peak();
    if (asked.peak_bytes) out_.target_bytes = *asked.peak_bytes;
    else if (*asked.budget <= 0) return take_least();
    else if (*asked.budget >= 1) return take_none();
    else out_.target_bytes = between(*asked.budget);
    return find_below();
  }

 private:
  const Program& program() const { return *asked_.job.programs[asked_.which]; }

  int64_t plan(const RematDecision& decision) { return planned_with(asked_, decision); }

  int64_t kept_peak() {
    if (!kept_) kept_ = planned_peak(program(), asked_.sizes);
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

  TargetChoice take_none() {
    out_.decision = chooser_.none().decision;
    out_.target_bytes = out_.planned_bytes = kept_peak();
    return std::move(out_);
  }

  TargetChoice take_least() {
    if (least_peak() >= kept_peak()) return take_none();
    out_.decision = chooser_.least().decision;
    out_.target_bytes = out_.planned_bytes = least_peak();
    return std::move(out_);
  }

  TargetChoice find_below() {
    if (kept_peak() <= out_.target_bytes) return take_none();
    // A plan may need slightly more than is live at once: the model then gets a target lower by that amount.
    int64_t below = out_.target_bytes;
    for (int i = 0; i < kMostPlans; ++i) {
      std::optional<RematChoice> choice = chooser_.fit(below);
      if (!choice) break;
      const int64_t planned = plan(choice->decision);
      if (planned <= out_.target_bytes) {
        out_.decision = std::move(choice->decision);
        out_.planned_bytes = planned;
        return std::move(out_);
      }
      below = std::min(below, choice->peak_bytes) - (planned - out_.target_bytes);
    }
    if (least_peak() > out_.target_bytes) {
      out_.missed = out_of_reach();
      return take_least();
    }
    out_.decision = chooser_.least().decision;
    out_.planned_bytes = least_peak();
    return std::move(out_);
  }

  Error out_of_reach() {
    const int64_t least = std::min(least_peak(), kept_peak());
    return {ErrorKind::cannot_apply,
            "a peak of " + exact_bytes(out_.target_bytes) + " is out of reach: the lowest that was found is " +
                exact_bytes(least) + ", the lower bound " + exact_bytes(out_.bound.bytes),
            {{}, 0, 0, {}, place_of(program(), program().graph, model_.node(out_.bound.at))},
            "at the bound " + held_text(model_, out_.bound)};
  }

  const TargetQuestion& asked_;
  RematModel& model_;
  RematChooser chooser_;
  TargetChoice out_;
  std::optional<int64_t> kept_, least_;
};

}  // namespace

TargetChoice choose_for(const TargetQuestion& question) { return TargetFinder(question).find(); }

int64_t planned_with(const TargetQuestion& question, const RematDecision& decision) {
  const size_t chosen[] = {question.which};
  Job trial(question.job, chosen);
  apply_remat(*question.model, question.model->place(decision), &trial.programs[0]->graph);
  return planned_peak(*trial.programs[0], question.sizes);
}

}  // namespace sg
