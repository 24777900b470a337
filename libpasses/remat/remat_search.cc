// Local search for what cuts do not model: the memory live while a layer is recomputed, and slack below the target.
#include <algorithm>
#include <numeric>

#include "libgraph/base/parallel.h"
#include "libpasses/remat/remat_choose.h"

namespace sg {
namespace {

constexpr int kPasses = 4;
constexpr size_t kMostUnitsForPairs = 48;
constexpr int kEaseRounds = 2;
constexpr size_t kEaseTries = 40, kNearCopies = 200;

}  // namespace

std::vector<uint32_t> RematChooser::recomputed_of(const RematDecision& decision,
                                                  const std::vector<uint32_t>& units) const {
  std::vector<uint32_t> out;
  std::ranges::copy_if(units, std::back_inserter(out),
                       [&](uint32_t u) { return fate_of(decision, u) == Fate::recomputed; });
  return out;
}

// The choice with `fate` for `units`.
RematChoice RematChooser::with(const RematChoice& start, std::span<const uint32_t> units, Fate fate) {
  RematDecision decision = start.decision;
  set(&decision, units, fate);
  return weigh(std::move(decision));
}

// The cost of the same choice only.
double RematChooser::cost_with(const RematChoice& start, std::span<const uint32_t> units, Fate fate) {
  spend(model_.size() + 1);
  RematDecision decision = start.decision;
  set(&decision, units, fate);
  return model_.cost(decision);
}

bool RematChooser::take_if_better(RematChoice* best, RematChoice choice, int64_t target) const {
  if (!is_better(choice, *best, target)) return false;
  *best = std::move(choice);
  return true;
}

// Kinds, those with the most memory first.
std::vector<uint32_t> RematChooser::largest_kinds() const {
  std::vector<int64_t> bytes(kinds_.size(), 0);
  for (size_t k = 0; k < kinds_.size(); ++k)
    for (uint32_t u : kinds_[k]) bytes[k] += model_.made_bytes(units_[u].at);
  std::vector<uint32_t> out(kinds_.size());
  std::iota(out.begin(), out.end(), 0u);
  std::ranges::stable_sort(out, [&](uint32_t a, uint32_t b) { return bytes[a] > bytes[b]; });
  return out;
}

// Looks for the lowest peak: starts from recomputing everything, from policies and from cuts, then reverses the
// decision kind by kind, and then changes what lives at the peak.
RematChoice RematChooser::lower(RematChoice best) {
  take_if_better(&best, weigh(cut(0, 0)), 0);
  RematDecision everything = of_bits(0);
  for (uint32_t u = 0; u < units_.size(); ++u) set(&everything, u, Fate::recomputed);
  take_if_better(&best, weigh(ease(std::move(everything))), 0);
  for (const std::vector<uint8_t>& start : search_.starts) {
    RematDecision decision = of_bits(0);
    for (uint32_t u = 0; u < units_.size(); ++u)
      if (start[units_[u].at]) set(&decision, u, Fate::recomputed);
    take_if_better(&best, weigh(ease(std::move(decision))), 0);
  }
  const size_t reserve = work_ / 2;
  bool changes = true;
  for (int pass = 0; changes && pass < kPasses; ++pass) {
    changes = false;
    for (uint32_t k : largest_kinds()) {
      if (work_ < reserve || !affords(1)) return best;
      const Fate now = fate_of(best.decision, kinds_[k][0]);
      changes |= take_if_better(&best, with(best, kinds_[k], other(now)), 0);
    }
  }
  return descend_briefly(std::move(best));
}

// Keeps values after all while the graph fits, in order of cost saved per byte.
RematChoice RematChooser::give_back(RematChoice best, int64_t target) {
  for (int pass = 0; pass < kPasses; ++pass) {
    struct Gain {
      double worth;
      uint32_t kind;
    };
    std::vector<Gain> gains;
    for (uint32_t k : largest_kinds()) {
      if (!affords(2)) break;
      const std::vector<uint32_t> recomputed = recomputed_of(best.decision, kinds_[k]);
      if (recomputed.empty()) continue;
      double bytes = 1;
      for (uint32_t u : recomputed) bytes += static_cast<double>(model_.made_bytes(units_[u].at));
      const double spared = best.cost - cost_with(best, recomputed, Fate::kept);
      if (spared > 0) gains.push_back({spared / bytes, k});
    }
    std::ranges::stable_sort(gains, [](const Gain& a, const Gain& b) { return a.worth > b.worth; });
    const double before = best.cost;
    for (const Gain& gain : gains) {
      if (!affords(1)) return best;
      best = give_back_part(best, kinds_[gain.kind], target);
    }
    if (best.cost >= before) break;
  }
  return best;
}

void RematChooser::recompute_less(RematDecision decision, int64_t peak, const Takes& takes) {
  work_ = search_.work;
  RematChoice best = weigh(std::move(decision));
  std::vector<std::pair<double, uint32_t>> by_cost;
  for (uint32_t k = 0; k < kinds_.size() && affords(2); ++k)
    by_cost.emplace_back(cost_with(best, kinds_[k], Fate::kept), k);
  std::ranges::sort(by_cost);
  for (const auto& [cost, k] : by_cost) {
    const std::vector<uint32_t> recomputed = recomputed_of(best.decision, kinds_[k]);
    for (size_t count = recomputed.size(); count > 0 && affords(1); count /= 2) {
      RematChoice choice = with(best, std::span(recomputed).last(count), Fate::kept);
      if (choice.peak_bytes > peak || choice.cost > best.cost || !takes(choice.decision)) continue;
      best = std::move(choice);
      break;
    }
  }
}

// Keeps as many of a kind as fit, last layers first, whose values live shortest.
RematChoice RematChooser::give_back_part(const RematChoice& start, const std::vector<uint32_t>& members,
                                         int64_t target) {
  const std::vector<uint32_t> recomputed = recomputed_of(start.decision, members);
  RematChoice best = start;
  size_t fits = 0, fails = recomputed.size() + 1;
  for (size_t count = recomputed.size(); count > fits && count < fails && affords(1); count = (fits + fails) / 2) {
    RematChoice choice = with(start, std::span(recomputed).last(count), Fate::kept);
    (choice.peak_bytes <= target ? fits : fails) = count;
    if (choice.peak_bytes <= target) take_if_better(&best, std::move(choice), target);
  }
  return best;
}

// Reverses single units, and pairs of units if there are few.
RematChoice RematChooser::exchange(RematChoice best, int64_t target) {
  const uint32_t count = static_cast<uint32_t>(units_.size());
  bool changes = true;
  for (int pass = 0; changes && pass < kPasses; ++pass) {
    changes = false;
    if (!affords(count)) break;  // an incomplete pass would be of no use
    for (uint32_t u = 0; u < count; ++u)
      changes |= take_if_better(&best, with(best, {&u, 1}, other(fate_of(best.decision, u))), target);
    if (changes || count > kMostUnitsForPairs) continue;
    for (uint32_t u = 0; u < count; ++u)
      for (uint32_t v = u + 1; v < count && affords(1); ++v) {
        RematDecision decision = best.decision;
        set(&decision, u, other(fate_of(decision, u)));
        set(&decision, v, other(fate_of(decision, v)));
        changes |= take_if_better(&best, weigh(std::move(decision)), target);
      }
  }
  return best;
}

// Only kinds that are recomputed right before the peak can lower it.
RematDecision RematChooser::ease(RematDecision decision) {
  for (int round = 0; round < kEaseRounds; ++round) {
    const RematOutcome now = model_.simulate(decision);
    const std::vector<uint8_t> near = copied_near(now);
    std::vector<uint32_t> tries;
    for (uint32_t k = 0; k < kinds_.size() && tries.size() < kEaseTries && affords(tries.size() + 1); ++k)
      if (std::ranges::any_of(recomputed_of(decision, kinds_[k]), [&](uint32_t u) { return near[units_[u].at]; }))
        tries.push_back(k);
    const std::vector<int64_t> peaks = peaks_without(decision, tries);
    const auto lowest = std::ranges::min_element(peaks);
    if (lowest == peaks.end() || *lowest >= now.peak_bytes) break;
    set(&decision, kinds_[tries[static_cast<size_t>(lowest - peaks.begin())]], Fate::kept);
  }
  return decision;
}

// The peak with each of the kinds kept instead. Trials are independent: each thread has its own model.
std::vector<int64_t> RematChooser::peaks_without(const RematDecision& decision, const std::vector<uint32_t>& kinds) {
  spend(kinds.size() * (model_.size() + 1));
  const size_t shares = std::clamp<size_t>(search_.threads, 1, std::max<size_t>(kinds.size() / 4, 1));
  std::vector<RematModel> models(shares - 1, model_);
  std::vector<int64_t> out(kinds.size(), 0);
  parallel_for(shares, shares, [&](size_t share) {
    RematModel& model = share == 0 ? model_ : models[share - 1];
    for (size_t i = share; i < kinds.size(); i += shares) {
      RematDecision kept = decision;
      set(&kept, kinds_[kinds[i]], Fate::kept);
      out[i] = model.weigh(kept).peak_bytes;
    }
  });
  return out;
}

// By node: whether it is among the last copies before the peak.
std::vector<uint8_t> RematChooser::copied_near(const RematOutcome& outcome) const {
  std::vector<uint8_t> out(model_.size(), 0);
  size_t end = 0;
  while (end < outcome.copies.size() && outcome.copies[end].before <= outcome.peak_at) ++end;
  for (size_t i = end - std::min(end, kNearCopies); i < end; ++i) out[outcome.copies[i].node] = 1;
  return out;
}

// A copy that lives long until its next user is recomputed before that user, if its memory is part of the peak.
RematChoice RematChooser::renew(RematChoice best, int64_t target) {
  const size_t reserve = work_ / 2;
  for (bool changes = true; changes && best.peak_bytes > target;) {
    changes = false;
    const std::vector<uint32_t> next_use = model_.longest_waits(best.decision);
    for (uint32_t k : largest_kinds()) {
      if (work_ < reserve || !affords(1)) return best;
      RematDecision decision = best.decision;
      const size_t before = decision.renew.size();
      for (uint32_t u : recomputed_of(decision, kinds_[k])) {
        if (next_use[units_[u].at] == RematModel::kNone) continue;
        decision.renew.push_back({units_[u].at, next_use[units_[u].at]});
        for (uint32_t follower : units_[u].followers) decision.renew.push_back({follower, next_use[units_[u].at]});
      }
      if (decision.renew.size() == before) continue;
      std::ranges::stable_sort(decision.renew, {}, &RematCopy::before);
      changes |= take_if_better(&best, weigh(std::move(decision)), target);
    }
  }
  return best;
}

}  // namespace sg
