#include "libpasses/remat/remat_target.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>

#include "libpasses/exact_bytes.h"
#include "libpasses/planned_peak.h"
#include "libpasses/remat/remat_alike.h"
#include "libpasses/remat/remat_apply.h"
#include "libpasses/remat/remat_choose.h"
#include "libpasses/remat/remat_ease.h"
#include "libpasses/remat/remat_report.h"
#include "libpasses/remat/remat_tags.h"

namespace sg {
namespace {

constexpr size_t kWork = 8000000;  // node visits of the model: some tenths of a second per search
constexpr int kMostPlans = 4;      // searches until the memory plan fits too
// Further searches for a lower peak than that of the first: all of them together, and each.
constexpr size_t kFurtherWork = kWork / 8, kFurtherStep = kWork / 8;
constexpr size_t kSpareWork = 200000;  // nodes planned to make a policy's decision cheaper
constexpr int64_t kSteps = 16;         // targets between the lowest peak and its bound

// What a policy that keeps less would recompute, of the nodes allowed.
template <class Predicate>
std::vector<uint8_t> allowed_by(const RematPart& part, const Predicate& is_kept) {
  std::vector<uint8_t> out = part.allowed;
  for (uint32_t at = 0; at < out.size(); ++at)
    if (out[at] != 0) out[at] = !is_kept(part.model->graph(), part.model->node(at));
  return out;
}

// One program's decisions by their planned peak.
class ProgramTarget {
 public:
  ProgramTarget(const TargetQuestion& asked, size_t which, RematPart* part)
      : asked_(asked),
        which_(which),
        part_(*part),
        chooser_(part->model.get(), {part->allowed,
                                     part->crossing,
                                     {allowed_by(*part, is_kept_by_default), allowed_by(*part, is_kept_by_full)},
                                     kWork,
                                     asked.by_tags_alone,
                                     asked.threads}) {
    bound_ = part_.model->bound(part_.open());
    part_.bound_bytes = bound_.bytes;
  }

  int64_t kept_peak() {
    if (!part_.before_bytes) part_.before_bytes = planned_peak(program(), asked_.sizes[which_]);
    return *part_.before_bytes;
  }

  int64_t least_peak() { return least().bytes; }

  // False, with the lowest peak that was found, when nothing that was found fits.
  bool fit(int64_t target) {
    if (kept_peak() <= target) {
      take(chooser_.none().decision, kept_peak());
      return true;
    }
    if (std::optional<Planned> found = search(target)) take(std::move(found->decision), found->bytes);
    else take_least();
    return *part_.after_bytes <= target;
  }

  void take(RematDecision decision, int64_t planned_bytes) {
    part_.decision = std::move(decision);
    part_.after_bytes = planned_bytes;
  }

  void take_least() { take(least().decision, least_peak()); }

  // Decisions for a low peak, that of the lowest first.
  std::vector<RematDecision> low_decisions() {
    std::vector<RematDecision> out = {least().decision};
    std::ranges::copy(by_rules_, std::back_inserter(out));
    for (const RematChoice& end : chooser_.nearly_least()) out.push_back(end.decision);
    return out;
  }

  bool take_if_it_fits(RematDecision decision, int64_t target) {
    const int64_t planned = plan(decision);
    if (planned > target) return false;
    take(std::move(decision), planned);
    return true;
  }

  // The arena under the decision, by the memory plan instead of the model. Searches for one peak and another often find
  // the same decision.
  int64_t plan(const RematDecision& decision) {
    const auto known = std::ranges::find(plans_, decision, &Planned::decision);
    if (known != plans_.end()) return known->bytes;
    return plans_.emplace_back(Planned{decision, plan_anew(decision)}).bytes;
  }

  MissedTarget missed(int64_t target) {
    Error error{ErrorKind::cannot_apply,
                "a peak of " + exact_bytes(target) + " is out of reach: the lowest that was found is " +
                    exact_bytes(least_peak()) + ", the lower bound " + exact_bytes(bound_.bytes),
                {{}, 0, 0, {}, place_of(program(), program().graph, part_.model->node(bound_.at))},
                bound_.bytes > 0 ? "at the bound " + held_text(*part_.model, bound_) : ""};
    return {std::move(error), least_peak()};
  }

 private:
  struct Planned {
    RematDecision decision;
    int64_t bytes = 0;
  };

  // The lowest of what the search for it, what that met on its way, the policies, and searches for lower and lower
  // peaks find.
  const Planned& least() {
    if (least_) return *least_;
    least_ = Planned{chooser_.none().decision, kept_peak()};
    take_lower(chooser_.least().decision, kept_peak() - 1);
    bool is_lavish = false;
    int plans = kMostPlans;
    for (const RematChoice& end : chooser_.nearly_least()) {
      if (end.peak_bytes >= least_->bytes || plans-- == 0) break;
      is_lavish |= take_lower(end.decision, least_->bytes - 1);
    }
    for (const RematRule& rule : part_.rules) {
      by_rules_.push_back(decision_by(rule, part_.model.get(), asked_.threads));
      is_lavish |= take_lower(by_rules_.back(), least_->bytes - 1);
    }
    if (is_lavish) spare();
    search_lower();
    return *least_;
  }

  // A policy recomputes more than its peak takes, and so does what was met on the way to another peak.
  void spare() {
    size_t tries = kSpareWork / (part_.model->size() + 1);
    chooser_.spare(least_->decision, least_->bytes, [&](const RematDecision& decision) {
      return tries > 0 && (--tries, take_lower(decision, least_->bytes));
    });
  }

  // Whether it plans at most `bytes`. A plan is never below what the model says, but takes longer.
  bool take_lower(RematDecision decision, int64_t bytes) {
    decision = chooser_.without_idle_views(std::move(decision));
    if (part_.model->is_exact() && part_.model->weigh(decision).peak_bytes > bytes) return false;
    const int64_t planned = plan(decision);
    if (planned > bytes) return false;
    least_ = Planned{std::move(decision), planned};
    return true;
  }

  // A plan may need slightly more than is live at once: the model then gets a target lower by that amount.
  std::optional<Planned> search(int64_t target, size_t most_work = SIZE_MAX) {
    int64_t below = target;
    const size_t before = chooser_.work_done();
    for (int i = 0; i < kMostPlans && chooser_.work_done() - before < most_work; ++i) {
      std::optional<RematChoice> choice = chooser_.fit(below);
      if (!choice) break;
      choice->decision = chooser_.without_idle_views(std::move(choice->decision));
      const int64_t planned = plan(choice->decision);
      if (planned <= target) return Planned{std::move(choice->decision), planned};
      below = std::min(below, choice->peak_bytes) - (planned - target);
    }
    return std::nullopt;
  }

  // Searches below the lowest peak until nothing is found; also far below, since cuts differ by target: one for less
  // may find what one for more misses.
  void search_lower() {
    const size_t end = chooser_.work_done() + kFurtherWork;
    chooser_.limit_work(kFurtherStep);
    for (int64_t step = 0; step < kSteps && chooser_.work_done() < end; ++step) {
      const int64_t room = least_->bytes - bound_.bytes;
      if (room <= step) break;
      std::optional<Planned> lower = search(least_->bytes - 1 - room * step / kSteps, end - chooser_.work_done());
      if (lower) least_ = std::move(lower), step = -1;
    }
    chooser_.limit_work(kWork);
  }

  const Program& program() const { return *asked_.job.programs[which_]; }

  int64_t plan_anew(const RematDecision& decision) const {
    const size_t chosen[] = {which_};
    Job trial(asked_.job, chosen);
    apply_remat(*part_.model, part_.model->place(decision), &trial.programs[0]->graph);
    return planned_peak(*trial.programs[0], asked_.sizes[which_]);
  }

  const TargetQuestion& asked_;
  size_t which_;
  RematPart& part_;
  RematChooser chooser_;
  RematBound bound_;
  std::optional<Planned> least_;
  std::vector<RematDecision> by_rules_;
  std::vector<Planned> plans_;
};

class JobTarget {
 public:
  JobTarget(const TargetQuestion& asked, std::span<RematPart> parts) : asked_(asked), parts_(parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto same = std::ranges::find_if(
          parts.first(i), [&](const RematPart& other) { return has_equal_nodes(*other.model, *parts[i].model); });
      first_.push_back(static_cast<size_t>(same - parts.begin()));
      programs_.push_back(first_[i] == i ? std::make_unique<ProgramTarget>(asked, i, &parts[i]) : nullptr);
    }
  }

  std::vector<MissedTarget> run() {
    std::vector<MissedTarget> missed;
    const int64_t target = target_bytes();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!programs_[i]) copy_decision(parts_[first_[i]], &parts_[i]);
      else if (!decide(i, target)) missed.push_back(programs_[i]->missed(target));
      parts_[i].target_bytes = target;
    }
    return missed;
  }

 private:
  // The lowest peak of the job: that of the program that needs most. A program that needs less as it is is not searched.
  int64_t least_peak(std::vector<ProgramTarget*> by_need) {
    std::ranges::sort(by_need, std::greater<>(), &ProgramTarget::kept_peak);
    int64_t out = 0;
    for (ProgramTarget* program : by_need) {
      if (program->kept_peak() <= out) break;
      out = std::max(out, program->least_peak());
    }
    return out;
  }

  int64_t target_bytes() {
    if (asked_.target.peak_bytes) return *asked_.target.peak_bytes;
    const double budget = *asked_.target.budget;
    std::vector<ProgramTarget*> all;
    int64_t most = 0;
    for (const auto& program : programs_)
      if (program) all.push_back(program.get()), most = std::max(most, program->kept_peak());
    if (budget >= 1) return most;
    const int64_t least = asked_.alike ? std::min(peak_alike(least_alike()), most) : least_peak(std::move(all));
    return least + std::llround(std::max(budget, 0.0) * static_cast<double>(most - least));
  }

  RematDecision like_first(size_t i, const RematDecision& decision) const {
    return decision_alike(*parts_[0].model, decision, *parts_[i].model, parts_[i].open());
  }

  // The highest peak of a program if all do as the first.
  int64_t peak_alike(const RematDecision& decision) {
    int64_t out = programs_[0]->plan(decision);
    for (size_t i = 1; i < programs_.size(); ++i)
      if (programs_[i]) out = std::max(out, programs_[i]->plan(like_first(i, decision)));
    return out;
  }

  // Where all do as the first: of its low decisions the one under which the job's peak is lowest. What is lowest for
  // the first alone may be no good for another.
  const RematDecision& least_alike() {
    if (least_alike_) return *least_alike_;
    int64_t least = INT64_MAX;
    for (RematDecision& decision : programs_[0]->low_decisions())
      if (const int64_t peak = peak_alike(decision); peak < least) least = peak, least_alike_ = std::move(decision);
    return *least_alike_;
  }

  bool decide(size_t i, int64_t target) {
    ProgramTarget& program = *programs_[i];
    if (asked_.alike && i > 0 && program.take_if_it_fits(like_first(i, parts_[0].decision), target)) return true;
    bool fits = true;
    if (!asked_.target.budget || program.kept_peak() <= target || program.least_peak() < target)
      fits = program.fit(target);
    else program.take_least();
    if (asked_.alike && i == 0 && asked_.target.budget && peak_alike(parts_[0].decision) > target)
      program.take(least_alike(), program.plan(least_alike()));  // what suffices for the first would not for another
    return fits;
  }

  static void copy_decision(const RematPart& from, RematPart* to) {
    to->decision = from.decision;
    to->bound_bytes = from.bound_bytes;
  }

  const TargetQuestion& asked_;
  std::span<RematPart> parts_;
  std::vector<size_t> first_;                             // by program: the first one with equal nodes
  std::vector<std::unique_ptr<ProgramTarget>> programs_;  // null: equal to an earlier one
  std::optional<RematDecision> least_alike_;
};

}  // namespace

std::vector<MissedTarget> choose_for_target(const TargetQuestion& question, std::span<RematPart> parts) {
  return JobTarget(question, parts).run();
}

}  // namespace sg
