// Votes: a node affected by an edit takes the partner proposed by the partners of its neighbours.
#include <algorithm>

#include "libgraph/diff/match_steps.h"

namespace sg {
namespace {

constexpr size_t kMaxCandidates = Matching::kMaxCandidates;
using Rank = Matching::Rank;

class Vote {
 public:
  Vote(Matching* m, Level level, Votes votes)
      : m_(*m),
        level_(level),
        must_be_clear_(votes == Votes::clear_in_place || votes == Votes::clear),
        only_same_place_(votes == Votes::clear_in_place || votes == Votes::in_place) {}

  void run() { pass(false), pass(true); }

 private:
  void pass(bool backward) {
    for (uint32_t i = 0; i < m_.count(1); ++i) {
      uint32_t y = backward ? m_.count(1) - 1 - i : i;
      if (!m_.is_free(1, y) || m_.by_operands->fit(y).free_a > 0) continue;  // copies are left to `sweep`
      uint32_t x = best_partner(1, y);
      if (x != MatchSide::kNone && best_partner(0, x) == y) m_.pair(x, y);
    }
  }

  bool fits(uint32_t x, uint32_t y) const {
    const MatchSide &a = m_.side(0), &b = m_.side(1);
    return level_ == Level::any_op || (level_ == Level::same_op ? a.op[x] == b.op[y] : a.key[x] == b.key[y]);
  }

  uint32_t best_partner(int s, uint32_t n) {
    propose(s, n);
    uint32_t best = MatchSide::kNone;
    bool is_clear = true;
    Rank best_rank{};
    for (uint32_t c : candidates_) {
      uint32_t x = s == 0 ? n : c, y = s == 0 ? c : n;
      if (!fits(x, y)) continue;
      PairWorth w = m_.state.worth(x, y, true);
      if (w.gain <= 0 || !w.is_allowed() || (only_same_place_ && !w.same_place)) continue;
      Rank r = m_.rank(x, y, w, s);
      bool is_rival = best != MatchSide::kNone && std::equal(r.begin(), r.end() - 1, best_rank.begin());
      if (is_rival) is_clear = false;
      if (best != MatchSide::kNone && !is_rival && r > best_rank) is_clear = true;
      if (best == MatchSide::kNone || r > best_rank || (r == best_rank && c < best)) best = c, best_rank = r;
    }
    return must_be_clear_ && !is_clear ? MatchSide::kNone : best;
  }

  // Collects in candidates_ the unmatched nodes of the other side that stand in n's place at its neighbours' partners.
  void propose(int s, uint32_t n) {
    candidates_.clear();
    uint32_t near = m_.state.expected(s, n);
    const MatchSide& here = m_.side(s);
    for (uint32_t v : here.operands(n))
      if (uint32_t p = m_.state.value_partner(s, v); p != MatchSide::kNone) propose_users(1 - s, p, near);
    for (uint32_t v = here.first_result[n]; v < here.first_result[n + 1]; ++v) {
      std::span<const MatchUse> uses = here.uses(v);
      for (const MatchUse& use : uses.first(std::min(uses.size(), kMaxCandidates))) propose_operand(s, use);
    }
    if (here.operands(n).empty() && candidates_.empty()) propose_near(s, near);
    std::sort(candidates_.begin(), candidates_.end());
    candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
  }

  // The unmatched users of a value; if there are many, only those around `near`.
  void propose_users(int s, uint32_t value, uint32_t near) {
    std::span<const MatchUse> uses = m_.side(s).uses(value);
    if (must_be_clear_ && uses.size() > 4 * kMaxCandidates) return;
    auto is_before = [](const MatchUse& use, uint32_t position) { return !use.is_output && use.user < position; };
    size_t middle = static_cast<size_t>(std::lower_bound(uses.begin(), uses.end(), near, is_before) - uses.begin());
    size_t found = 0, looked = 0;
    for (size_t i = middle; i < uses.size() && found < kMaxCandidates / 2 && looked < 4 * kMaxCandidates; ++i, ++looked)
      found += propose_node(s, uses[i]);
    found = looked = 0;
    for (size_t i = middle; i-- > 0 && found < kMaxCandidates / 2 && looked < 4 * kMaxCandidates; ++looked)
      found += propose_node(s, uses[i]);
  }

  bool propose_node(int s, const MatchUse& use) {
    if (use.is_output || !m_.is_free(s, use.user)) return false;
    candidates_.push_back(use.user);
    return true;
  }

  void propose_operand(int s, const MatchUse& use) {
    uint32_t there = use.is_output ? m_.state.output_partner(s, use.user) : m_.state.partner(s, use.user);
    if (there == MatchSide::kNone) return;
    const MatchSide& other = m_.side(1 - s);
    auto add = [&](uint32_t value) {
      uint32_t m = other.maker[value];
      if (m != MatchSide::kNone && m_.is_free(1 - s, m)) candidates_.push_back(m);
    };
    if (use.is_output) {
      ValueId v = other.graph->outputs()[there].value;
      if (v) add(other.value_of[v.index]);
      return;
    }
    std::span<const uint32_t> operands = other.operands(there);
    if (use.slot < operands.size()) add(operands[use.slot]);
    if (other.commutative[there]) add(operands[0]), add(operands[1]);
  }

  // Nodes without neighbours are found only by their place.
  void propose_near(int s, uint32_t near) {
    uint32_t begin = near > kMaxCandidates ? near - kMaxCandidates : 0;
    uint32_t end = std::min<uint32_t>(m_.count(1 - s), near + static_cast<uint32_t>(kMaxCandidates));
    for (uint32_t m = begin; m < end; ++m)
      if (m_.is_free(1 - s, m) && m_.side(1 - s).operands(m).empty()) candidates_.push_back(m);
  }

  Matching& m_;
  const Level level_;
  const bool must_be_clear_, only_same_place_;
  std::vector<uint32_t> candidates_;
};

}  // namespace

void vote(Matching* m, Level level, Votes votes) { Vote(m, level, votes).run(); }

}  // namespace sg
