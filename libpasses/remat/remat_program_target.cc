#include "libpasses/remat/remat_program_target.h"

#include <algorithm>
#include <utility>

#include "libpasses/exact_bytes.h"
#include "libpasses/planned_peak.h"
#include "libpasses/remat/remat_alike.h"
#include "libpasses/remat/remat_apply.h"
#include "libpasses/remat/remat_ease.h"
#include "libpasses/remat/remat_report.h"
#include "libpasses/remat/remat_tags.h"

namespace sg {
namespace {

constexpr size_t kWork = 8000000;         // node visits of the model: some tenths of a second per search
constexpr size_t kBriefWork = kWork / 8;  // of a brief search, and of all searches below the lowest peak together
constexpr int kMostPlans = 4;             // questions to the chooser until the memory plan fits too
constexpr size_t kNodesPlanned = 200000;  // to recompute less at the lowest peak
constexpr int64_t kLowerTargets = 16;     // between the lowest peak and its bound

// What a policy that keeps less would recompute, of the nodes allowed.
template <class Predicate>
std::vector<uint8_t> allowed_by(const RematPart& part, const Predicate& is_kept) {
  std::vector<uint8_t> out = part.allowed;
  for (uint32_t at = 0; at < out.size(); ++at)
    if (out[at] != 0) out[at] = !is_kept(part.model->graph(), part.model->node(at));
  return out;
}

}  // namespace

ProgramTarget::ProgramTarget(const TargetQuestion& asked, size_t which, RematPart* part)
    : asked_(asked),
      which_(which),
      part_(*part),
      chooser_(part->model.get(), {part->allowed,
                                   part->crossing,
                                   {allowed_by(*part, is_kept_by_default), allowed_by(*part, is_kept_by_full)},
                                   kWork,
                                   asked.by_tags_alone,
                                   asked.threads}),
      by_rules_(part->rules.size()) {
  bound_ = part_.model->bound(part_.open());
  part_.bound_bytes = bound_.bytes;
}

void ProgramTarget::add_follower(size_t which, const RematPart* part) {
  const auto is_like = [&](const RematPart& other) { return has_equal_operands(*other.model, *part->model); };
  if (!is_like(part_) && std::ranges::none_of(followers_, [&](const Follower& f) { return is_like(*f.part); }))
    followers_.push_back({which, part});
}

int64_t ProgramTarget::original_peak() {
  if (part_.before_bytes) return *part_.before_bytes;
  int64_t out = planned_peak(program(), asked_.sizes[which_]);
  for (const Follower& f : followers_)
    out = std::max(out, planned_peak(*asked_.job.programs[f.which], asked_.sizes[f.which]));
  part_.before_bytes = out;
  return out;
}

const RematPlanned& ProgramTarget::least() {
  if (least_) return *least_;
  least_ = original();
  take_as_least(chooser_.least().decision, original_peak() - 1);
  bool was_met_on_the_way = false;  // if so, it recomputes more than its peak takes
  int plans = kMostPlans;
  for (const RematChoice& end : chooser_.nearly_least()) {
    if (end.peak_bytes >= least_->bytes || plans-- == 0) break;
    was_met_on_the_way |= take_as_least(end.decision, least_->bytes - 1);
  }
  for (size_t rule = 0; rule < by_rules_.size(); ++rule)
    was_met_on_the_way |= take_as_least(by_rule(rule), least_->bytes - 1);
  if (was_met_on_the_way) recompute_less_at_least();
  search_lower([&] { return least_->bytes; }, [&](RematPlanned lower) { return least_ = std::move(lower), true; });
  return *least_;
}

std::optional<RematPlanned> ProgramTarget::search_briefly(int64_t target) {
  return search(target, {kBriefWork, kBriefWork});
}

std::vector<RematDecision> ProgramTarget::met_on_the_way() {
  std::vector<RematDecision> out = {least().decision};
  for (size_t rule = 0; rule < by_rules_.size(); ++rule) out.push_back(by_rule(rule));
  for (const RematChoice& end : chooser_.nearly_least()) out.push_back(end.decision);
  return out;
}

const RematDecision& ProgramTarget::by_rule(size_t rule) {
  std::optional<RematDecision>& out = by_rules_[rule];
  if (!out) out = decision_by(part_.rules[rule], part_.model.get(), asked_.threads);
  return *out;
}

int64_t ProgramTarget::plan(const RematDecision& decision, int64_t most) {
  auto known = std::ranges::find(plans_, decision, &Planned::decision);
  if (known == plans_.end()) known = plans_.insert(known, {decision, plan_anew(which_, part_, decision), 0});
  for (; known->followers < followers_.size() && known->bytes <= most; ++known->followers) {
    const Follower& next = followers_[known->followers];
    known->bytes = std::max(known->bytes, plan_anew(next.which, *next.part, decision));
  }
  return known->bytes;
}

// Below the lowest peak, also far below, since cuts differ by target: one for less may find what one for more misses.
void ProgramTarget::search_lower(const std::function<int64_t()>& lowest, const Takes& takes) {
  const size_t end = chooser_.work_done() + kBriefWork;
  for (int64_t step = 0; step < kLowerTargets && chooser_.work_done() < end; ++step) {
    const int64_t room = lowest() - bound_.bytes;
    if (room <= step) break;
    std::optional<RematPlanned> lower =
        search(lowest() - 1 - room * step / kLowerTargets, {kBriefWork, end - chooser_.work_done()});
    if (lower && takes(std::move(*lower))) step = -1;
  }
}

MissedTarget ProgramTarget::missed(int64_t target, int64_t bytes) const {
  Error error{ErrorKind::cannot_apply,
              "a peak of " + exact_bytes(target) + " is out of reach: the lowest that was found is " +
                  exact_bytes(bytes) + ", the lower bound " + exact_bytes(bound_.bytes),
              {{}, 0, 0, {}, place_of(program(), program().graph, part_.model->node(bound_.at))},
              bound_.bytes > 0 ? held_text(*part_.model, bound_) : ""};
  return {std::move(error), bytes};
}

// A plan may need slightly more than is live at once: the model then gets a target lower by that amount.
std::optional<RematPlanned> ProgramTarget::search(int64_t target, WorkLimit limit) {
  int64_t below = target;
  const size_t before = chooser_.work_done();
  for (int i = 0; i < kMostPlans && chooser_.work_done() - before < limit.all; ++i) {
    std::optional<RematChoice> choice = chooser_.fit(below, limit.each);
    if (!choice) break;
    choice->decision = chooser_.without_idle_views(std::move(choice->decision));
    const int64_t planned = plan(choice->decision, target);
    if (planned <= target) return RematPlanned{std::move(choice->decision), planned};
    below = std::min(below, choice->peak_bytes) - (planned - target);
  }
  return std::nullopt;
}

// A policy recomputes more than its peak takes, and so does what was met on the way to another peak.
void ProgramTarget::recompute_less_at_least() {
  size_t tries = kNodesPlanned / (part_.model->size() + 1);
  chooser_.recompute_less(least_->decision, least_->bytes, [&](const RematDecision& decision) {
    return tries > 0 && (--tries, take_as_least(decision, least_->bytes));
  });
}

// If it plans at most so much.
bool ProgramTarget::take_as_least(RematDecision decision, int64_t most_bytes) {
  decision = chooser_.without_idle_views(std::move(decision));
  if (least_plan(decision) > most_bytes) return false;
  const int64_t planned = plan(decision, most_bytes);
  if (planned > most_bytes) return false;
  least_ = RematPlanned{std::move(decision), planned};
  return true;
}

int64_t ProgramTarget::plan_anew(size_t which, const RematPart& part, const RematDecision& decision) const {
  const size_t chosen[] = {which};
  Job trial(asked_.job, chosen);
  apply_remat(*part.model, part.model->place(decision), &trial.programs[0]->graph);
  return planned_peak(*trial.programs[0], asked_.sizes[which]);
}

}  // namespace sg
