#include "libpasses/remat/remat_target.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "libpasses/remat/remat_alike.h"
#include "libpasses/remat/remat_program_target.h"

namespace sg {
namespace {

constexpr int64_t kAlikeSteps = 4;  // targets for a program that others follow, between what is asked and its lowest
constexpr int64_t kApartSteps = 4;  // targets for programs that decide for themselves, below the lowest peak
constexpr size_t kMostLeaders = 4;
constexpr int kMostTrials = 24;  // of agreement, in the search for the lowest peak

// A decision for each program.
struct JobDecision {
  std::vector<RematDecision> of;
  int64_t bytes = 0;  // the job's planned peak
};

class JobTarget {
 public:
  JobTarget(const TargetQuestion& asked, std::span<RematPart> parts) : asked_(asked), parts_(parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto same = std::ranges::find_if(
          parts.first(i), [&](const RematPart& other) { return has_equal_nodes(*other.model, *parts[i].model); });
      first_.push_back(static_cast<size_t>(same - parts.begin()));
      programs_.push_back(first_[i] == i ? std::make_unique<ProgramTarget>(asked, i, &parts[i]) : nullptr);
      if (programs_[i]) by_need_.push_back(i);
      else programs_[first_[i]]->add_follower(i, &parts[i]);
    }
    std::ranges::stable_sort(by_need_, [&](size_t a, size_t b) { return original_peak(a) > original_peak(b); });
  }

  TargetAnswer run() {
    TargetAnswer answer;
    const int64_t target = target_bytes();
    const JobDecision choice = chosen_for(target);
    for (size_t i = 0; i < parts_.size(); ++i) {
      take(choice.of[i], &parts_[i]);
      parts_[i].target_bytes = target;
      if (programs_[i] && *parts_[i].after_bytes > target)
        answer.missed.push_back(programs_[i]->missed(target, *parts_[i].after_bytes));
    }
    if (lowest_) answer.lowest_bytes = lowest_->bytes;
    answer.parting = std::move(parting_);
    return answer;
  }

 private:
  int64_t original_peak(size_t i) { return programs_[i]->original_peak(); }

  void take(const RematDecision& decision, RematPart* part) {
    const size_t first = first_[static_cast<size_t>(part - parts_.data())];
    part->decision = decision;
    part->bound_bytes = parts_[first].bound_bytes;
    part->after_bytes = programs_[first]->plan(decision);
  }

  int64_t target_bytes() {
    if (asked_.target.peak_bytes) return *asked_.target.peak_bytes;
    const int64_t most = original_peak(by_need_[0]);
    const double budget = std::max(*asked_.target.budget, 0.0);
    if (budget >= 1) return most;
    const int64_t least = lowest().bytes;
    return least + std::llround(budget * static_cast<double>(most - least));
  }

  JobDecision chosen_for(int64_t target) {
    if (lowest_ && lowest_->bytes == target) return *lowest_;
    JobDecision out = apart(target);
    if (parting_of(out)) {
      std::optional<JobDecision> followed = alike(target);
      out = followed ? std::move(*followed) : lowest();
    }
    return out.bytes > target && lowest().bytes < out.bytes ? lowest() : out;
  }

  // Programs with equal nodes do as the first of them. Beyond `most` the peak is only some number beyond.
  JobDecision planned(std::vector<RematDecision> decisions, int64_t most = INT64_MAX) {
    JobDecision out{std::move(decisions), 0};
    out.of.resize(parts_.size());
    for (size_t i : by_need_)
      if (out.bytes <= most) out.bytes = std::max(out.bytes, programs_[i]->plan(out.of[i], most));
    for (size_t i = 0; i < parts_.size(); ++i)
      if (!programs_[i]) out.of[i] = out.of[first_[i]];
    return out;
  }

  // No plan of the job needs less.
  int64_t least_plan(const std::vector<RematDecision>& decisions) {
    int64_t out = 0;
    for (size_t i : by_need_) out = std::max(out, programs_[i]->least_plan(decisions[i]));
    return out;
  }

  // Why ranks would not agree under the decision.
  std::optional<RematParting> parting_of(const JobDecision& decision) const {
    std::vector<RematOutcome> outcomes;
    for (size_t i = 0; i < parts_.size(); ++i) outcomes.push_back(parts_[i].model->place(decision.of[i]));
    std::vector<RematPlaced> placed;
    for (size_t i = 0; i < parts_.size(); ++i) placed.push_back({parts_[i].model.get(), &outcomes[i]});
    return find_parting(asked_.job, placed, asked_.threads);
  }

  // Each program for itself: what meets the target at the lowest cost, or else its lowest peak.
  JobDecision apart(int64_t target, bool briefly = false) {
    std::vector<RematDecision> out(parts_.size());
    for (size_t i : by_need_) {
      ProgramTarget& program = *programs_[i];
      if (program.original_peak() <= target) {
        out[i] = program.original().decision;
      } else {
        const bool is_least = program.knows_least() && program.least().bytes >= target;
        std::optional<RematPlanned> found;
        if (!is_least) found = briefly ? program.search_briefly(target) : program.search(target);
        out[i] = found ? std::move(found->decision) : program.least().decision;
      }
    }
    return planned(std::move(out));
  }

  // The lowest peak of programs that decide for themselves. One that needs less as it is is not searched.
  int64_t least_apart() {
    int64_t out = 0;
    for (size_t i : by_need_) {
      if (original_peak(i) <= out) break;
      out = std::max(out, programs_[i]->least().bytes);
    }
    return out;
  }

  const JobDecision& lowest() {
    if (lowest_) return *lowest_;
    std::vector<RematDecision> none(parts_.size());
    for (size_t i : by_need_) none[i] = programs_[i]->original().decision;
    lowest_ = planned(std::move(none));
    trials_ = kMostTrials;
    const int64_t least = least_apart();
    take_lower({apart(least).of});
    if (by_need_.size() == 1) return *lowest_;
    const bool do_part = parting_.has_value();
    take_lower(policies(do_part));
    if (!do_part) return *lowest_;
    for (size_t leader : leaders()) {
      std::vector<std::vector<RematDecision>> alike;
      for (const RematDecision& low : programs_[leader]->met_on_the_way()) alike.push_back(like(leader, low));
      take_lower(std::move(alike));
    }
    for (size_t leader : leaders())
      programs_[leader]->search_lower([&] { return lowest_->bytes; },
                                      [&](RematPlanned lower) { return take_lower({like(leader, lower.decision)}); });
    lower_apart(least);
    return *lowest_;
  }

  // Ranks that would part under the lowest peaks of all may agree under what they choose for more than that.
  void lower_apart(int64_t least) {
    trials_ = kMostTrials;
    for (int64_t step = 0; step < kApartSteps; ++step) {
      const int64_t room = lowest_->bytes - 1 - least;
      if (room < step) break;
      if (take_lower({apart(lowest_->bytes - 1 - room * step / kApartSteps, true).of})) step = -1;
    }
  }

  // Whether one of the decisions, by program, is lower than what is known.
  bool take_lower(std::vector<std::vector<RematDecision>> decisions) {
    std::vector<std::pair<int64_t, size_t>> by_peak;
    for (size_t k = 0; k < decisions.size(); ++k) by_peak.emplace_back(least_plan(decisions[k]), k);
    std::ranges::sort(by_peak);
    const int64_t before = lowest_->bytes;
    for (const auto& [peak, k] : by_peak) {
      if (peak >= lowest_->bytes || trials_ == 0) break;
      JobDecision choice = planned(std::move(decisions[k]), lowest_->bytes - 1);
      if (choice.bytes >= lowest_->bytes) continue;
      --trials_;
      if (std::optional<RematParting> parting = parting_of(choice)) parting_ = parting_ ? parting_ : parting;
      else lowest_ = std::move(choice);
    }
    return lowest_->bytes < before;
  }

  // What policies do without a target, as remat.cc has it: all as the first program, and each for itself.
  std::vector<std::vector<RematDecision>> policies(bool with_apart) {
    std::vector<std::vector<RematDecision>> out;
    for (size_t rule = 0; rule < parts_[0].rules.size(); ++rule) {
      std::vector<RematDecision>& alike = out.emplace_back(parts_.size());
      alike[0] = programs_[0]->by_rule(rule);
      for (size_t i : by_need_) {
        if (i == 0) continue;
        const RematRule& of = parts_[i].rules[rule];
        std::vector<uint8_t> allowed = of.recompute;
        for (uint32_t at : of.unshards) allowed[at] = 1;
        alike[i] = decision_alike(*parts_[0].model, alike[0], *parts_[i].model, allowed);
      }
      if (!with_apart) continue;
      std::vector<RematDecision>& apart = out.emplace_back(parts_.size());
      for (size_t i : by_need_) apart[i] = programs_[i]->by_rule(rule);
    }
    return out;
  }

  // Programs that others may follow: those that need most.
  std::vector<size_t> leaders() const {
    return {by_need_.begin(), by_need_.begin() + static_cast<std::ptrdiff_t>(std::min(by_need_.size(), kMostLeaders))};
  }

  // All as one program. What others have besides is recomputed, kept, or as is lowest for them: as they need least.
  std::vector<RematDecision> like(size_t leader, const RematDecision& decision) {
    const RematModel& model = *parts_[leader].model;
    std::vector<RematDecision> out(parts_.size());
    for (size_t i : by_need_) {
      if (i == leader) {
        out[i] = decision;
        continue;
      }
      const std::vector<uint8_t> open = parts_[i].open();
      const RematDecision none{std::vector<uint8_t>(model.size(), 0), {}};
      const std::vector<uint8_t> besides = decision_alike(model, none, *parts_[i].model, open).recompute;
      out[i] = decision_alike(model, decision, *parts_[i].model, open);
      int64_t lowest = parts_[i].model->weigh(out[i]).peak_bytes;
      for (const std::vector<uint8_t>& fates : {std::vector<uint8_t>(open.size(), 0), least_of(i)}) {
        RematDecision other = out[i];
        for (size_t at = 0; at < besides.size(); ++at)
          if (besides[at]) other.recompute[at] = fates[at];
        const int64_t peak = parts_[i].model->weigh(other).peak_bytes;
        if (peak > lowest) continue;
        lowest = peak;
        out[i] = std::move(other);
      }
    }
    return out;
  }

  const std::vector<uint8_t>& least_of(size_t i) { return programs_[i]->least().decision.recompute; }

  // Something that meets the target and that ranks agree under.
  std::optional<JobDecision> alike(int64_t target) {
    for (size_t leader : leaders())
      for (int64_t step = 0; step < kAlikeSteps; ++step) {
        ProgramTarget& program = *programs_[leader];
        const int64_t room = step == 0 ? 0 : target - program.least().bytes;
        if (room < 0) break;
        const std::optional<RematPlanned> found = program.search(target - room * step / kAlikeSteps);
        if (!found) break;
        JobDecision choice = planned(like(leader, found->decision), target);
        if (choice.bytes <= target && !parting_of(choice)) return choice;
      }
    return std::nullopt;
  }

  const TargetQuestion& asked_;
  std::span<RematPart> parts_;
  std::vector<size_t> first_;                             // by program: the first one with equal nodes
  std::vector<std::unique_ptr<ProgramTarget>> programs_;  // null: equal to an earlier one
  std::vector<size_t> by_need_;                           // programs that are not null, the largest as it is first
  std::optional<JobDecision> lowest_;
  std::optional<RematParting> parting_;  // under a decision that is lower, if it were not for this
  int trials_ = 0;                       // of agreement that are left
};

}  // namespace

TargetAnswer choose_for_target(const TargetQuestion& question, std::span<RematPart> parts) {
  return JobTarget(question, parts).run();
}

}  // namespace sg
