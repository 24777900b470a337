// Search for the lowest peak, guided by the peak: only what lives at it can lower it. A sequence of changes may climb
// before it falls (as in the search of Lin and Kernighan): where two moments are equally high, or a value is spared
// only together with what it is computed from, no single change lowers the peak.
#include <algorithm>
#include <utility>

#include "libpasses/remat/remat_choose.h"

namespace sg {
namespace {

constexpr int kDeepest = 8;       // changes in a sequence
constexpr int kStarts = 14;       // of a fixed sequence, besides keeping and recomputing everything
constexpr size_t kWorkShare = 8;  // of a search's work

}  // namespace

// Other fates for some units.
struct RematChooser::Move {
  std::vector<uint32_t> units;
  Fate fate = Fate::kept;
  int64_t bytes = 0;
};

// The chooser for which values that cross into later layers are units too.
RematChooser& RematChooser::wide() {
  if (search_.crossing.empty()) return *this;
  if (!wide_) {
    RematSearch search = search_;
    for (uint32_t at = 0; at < model_.size(); ++at) search.allowed[at] |= search.crossing[at];
    search.crossing.clear();
    wide_ = std::make_unique<RematChooser>(&model_, std::move(search));
  }
  return *wide_;
}

// A value that is recomputed needs what it is computed from: kept, that may live as long as the value did. So the
// sources are recomputed with it, up to those that live at the peak anyway. These may be a whole chain of layers, so
// each is looked up by unit: `reached_from` says which unit led to it last.
RematChooser::Move RematChooser::with_sources(uint32_t unit, const RematChoice& from,
                                              const std::vector<uint8_t>& is_at_peak,
                                              std::vector<uint32_t>* reached_from) const {
  Move out{{unit}, Fate::recomputed};
  (*reached_from)[unit] = unit;
  for (size_t i = 0; i < out.units.size(); ++i)
    model_.for_each_source(units_[out.units[i]].at, [&](uint32_t source) {
      const uint32_t maker = model_.maker(source);
      if (maker == RematModel::kNone || is_at_peak[maker] || unit_at_[maker] == RematModel::kNone) return;
      const uint32_t u = unit_at_[maker];
      if (fate_of(from.decision, u) == Fate::kept && std::exchange((*reached_from)[u], unit) != unit)
        out.units.push_back(u);
    });
  return out;
}

// A value that is kept for copies of its users is spared by keeping these.
RematChooser::Move RematChooser::users_of(uint32_t unit, const RematChoice& from) const {
  Move out{{}, Fate::kept};
  for (uint32_t user : users_[unit])
    if (fate_of(from.decision, user) == Fate::recomputed) out.units.push_back(user);
  return out;
}

// By unit: those that read its memory.
void RematChooser::find_users() {
  if (!users_.empty()) return;
  users_.resize(units_.size());
  for (uint32_t u = 0; u < units_.size(); ++u)
    model_.for_each_source(units_[u].at, [&](uint32_t source) {
      const uint32_t maker = model_.maker(source);
      if (maker == RematModel::kNone || unit_at_[maker] == RematModel::kNone) return;
      std::vector<uint32_t>& users = users_[unit_at_[maker]];
      if (users.empty() || users.back() != u) users.push_back(u);
    });
}

// Changes of what lives at the peak, those of most bytes first.
std::vector<RematChooser::Move> RematChooser::moves_at_peak(const RematChoice& from,
                                                            const std::vector<uint8_t>& moved) {
  find_users();
  spend(model_.size() + 1);
  std::vector<uint8_t> is_at_peak(model_.size(), 0);
  for (uint32_t at : model_.at_peak(from.decision)) is_at_peak[at] = 1;
  std::vector<uint32_t> reached_from(units_.size(), RematModel::kNone);
  std::vector<Move> out;
  const auto add = [&](Move move) {
    if (std::ranges::any_of(move.units, [&](uint32_t u) { return moved[u] != 0; })) return;
    for (uint32_t u : move.units) move.bytes += model_.made_bytes(units_[u].at);
    out.push_back(std::move(move));
  };
  for (uint32_t u = 0; u < units_.size(); ++u) {
    if (!is_at_peak[units_[u].at]) continue;
    const Fate now = fate_of(from.decision, u);
    add({{u}, other(now)});
    if (now == Fate::recomputed) continue;
    if (Move more = with_sources(u, from, is_at_peak, &reached_from); more.units.size() > 1) add(std::move(more));
    if (Move instead = users_of(u, from); !instead.units.empty()) add(std::move(instead));
  }
  for (const std::vector<uint32_t>& kind : kinds_)
    for (Fate now : {Fate::kept, Fate::recomputed}) {
      Move move{{}, other(now)};
      for (uint32_t u : kind)
        if (is_at_peak[units_[u].at] && fate_of(from.decision, u) == now) move.units.push_back(u);
      if (move.units.size() > 1) add(std::move(move));
    }
  std::ranges::stable_sort(out, [](const Move& a, const Move& b) { return a.bytes > b.bytes; });
  return out;
}

// One sequence: the first change that lowers the peak, or else the one that raises it least, and on from there.
bool RematChooser::take_lower_at_peak(RematChoice* best, int64_t target) {
  RematChoice now = *best;
  std::vector<uint8_t> moved(units_.size(), 0);
  for (int depth = 0; depth < kDeepest; ++depth) {
    std::optional<RematChoice> next;
    const Move* taken = nullptr;
    const std::vector<Move> moves = moves_at_peak(now, moved);
    for (const Move& move : moves) {
      if (!affords(2)) return false;
      RematChoice choice = with(now, move.units, move.fate);
      if (choice.peak_bytes < best->peak_bytes) return take_if_better(best, std::move(choice), target);
      if (next && !is_better(choice, *next, target)) continue;
      next = std::move(choice);
      taken = &move;
    }
    if (!next) return false;
    for (uint32_t u : taken->units) moved[u] = 1;
    now = std::move(*next);
  }
  return false;
}

RematChoice RematChooser::descend(RematChoice best, int64_t target) {
  while (best.peak_bytes > target && take_lower_at_peak(&best, target)) {
  }
  return best;
}

// By a share of the work that is left: the rest is for searches that go by layers.
RematChoice RematChooser::descend_briefly(RematChoice best) {
  const size_t rest = work_ - work_ / kWorkShare;
  work_ -= rest;
  best = descend(std::move(best), 0);
  work_ += rest;
  return best;
}

// Also from other starts. Every end is a candidate: a plan may put a higher one lower.
RematChoice RematChooser::descend_from_starts(RematChoice best) {
  work_ = search_.work / kWorkShare;
  best = descend(std::move(best), 0);
  ends_.clear();
  uint64_t bits = 0;  // of a fixed sequence, for reproducibility
  for (int i = 0; i < kStarts + 2 && affords(units_.size()); ++i) {
    RematDecision start = of_bits(0);
    for (uint32_t u = 0; u < units_.size(); ++u) {
      bits = bits * 6364136223846793005u + 1442695040888963407u;
      if (i == 1 || (i > 1 && (bits >> 40 & 1))) set(&start, u, Fate::recomputed);
    }
    ends_.push_back(descend(weigh(std::move(start)), 0));
    take_if_better(&best, ends_.back(), 0);
  }
  std::ranges::stable_sort(ends_, [](const RematChoice& a, const RematChoice& b) { return is_better(a, b, 0); });
  work_ = search_.work / 2;
  return best;
}

}  // namespace sg
