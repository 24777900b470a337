#include "libgraph/diff/match_steps.h"

#include <algorithm>

#include "libgraph/diff/match_ports.h"

namespace sg {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;

void add_neighbours(const MatchSide& a, uint32_t x, std::vector<uint32_t>* work) {
  for (uint32_t v : a.operands(x))
    if (a.maker[v] != MatchSide::kNone) work->push_back(a.maker[v]);
  for (uint32_t v = a.first_result[x]; v < a.first_result[x + 1]; ++v)
    for (const MatchUse& use : a.uses(v))
      if (!use.is_output) work->push_back(use.user);
}

}  // namespace

std::vector<uint32_t> longest_run(const std::vector<uint32_t>& partner_of_a) {
  std::vector<uint32_t> tails;  // by length - 1: positions of A
  std::vector<uint32_t> previous(partner_of_a.size(), MatchSide::kNone), run;
  for (uint32_t x = 0; x < partner_of_a.size(); ++x) {
    uint32_t y = partner_of_a[x];
    if (y == MatchSide::kNone) continue;
    auto at =
        std::lower_bound(tails.begin(), tails.end(), y, [&](uint32_t t, uint32_t v) { return partner_of_a[t] < v; });
    previous[x] = at == tails.begin() ? MatchSide::kNone : *(at - 1);
    if (at == tails.end()) tails.push_back(x);
    else *at = x;
  }
  for (uint32_t x = tails.empty() ? MatchSide::kNone : tails.back(); x != MatchSide::kNone; x = previous[x])
    run.push_back(x);
  std::reverse(run.begin(), run.end());
  return run;
}

void Matching::pair_unique(const std::array<std::vector<uint32_t>, 2>& classes) {
  struct Seen {
    uint32_t count[2] = {0, 0}, node[2] = {0, 0};
  };
  uint32_t limit = 0;
  for (const auto& list : classes)
    for (uint32_t c : list) limit = std::max(limit, c + 1);
  std::vector<Seen> seen(limit);
  for (int s = 0; s < 2; ++s)
    for (uint32_t n = 0; n < count(s); ++n)
      if (is_free(s, n)) ++seen[classes[s][n]].count[s], seen[classes[s][n]].node[s] = n;
  for (const Seen& c : seen)
    if (c.count[0] == 1 && c.count[1] == 1) pair(c.node[0], c.node[1]);
}

void match_whole_cones(Matching* m) {
  std::array<std::vector<uint32_t>, 2> down = classes_down(m->state), up = classes_up(m->state), both;
  SequenceTable table;
  for (int s = 0; s < 2; ++s)
    for (uint32_t n = 0; n < m->count(s); ++n)
      both[s].push_back(table.intern(std::array<uint32_t, 2>{down[s][n], up[s][n]}));
  m->pair_unique(both);
  m->pair_unique(down);
  m->pair_unique(up);
}

void Matching::look_ahead() {
  SequenceTable table;
  std::vector<uint64_t> uses;
  for (int s = 0; s < 2; ++s) {
    const MatchSide& here = side(s);
    ahead_[s].assign(count(s), 0);
    for (uint32_t n = count(s); n-- > 0;) {
      if (!state.is_free(s, n)) continue;
      buffer_ = {here.key[n]};
      for (uint32_t v : here.operands(n)) buffer_.push_back(known_value(s, v));
      if (here.commutative[n]) std::sort(buffer_.begin() + 1, buffer_.end());
      for (uint32_t v = here.first_result[n]; v < here.first_result[n + 1]; ++v) {
        uses.clear();
        for (const MatchUse& use : here.uses(v)) uses.push_back(known_use(s, use));
        std::sort(uses.begin(), uses.end());
        buffer_.push_back(static_cast<uint32_t>(uses.size()));
        for (uint64_t u : uses)
          buffer_.push_back(static_cast<uint32_t>(u >> 32)), buffer_.push_back(static_cast<uint32_t>(u));
      }
      ahead_[s][n] = table.intern(buffer_);
    }
  }
}

uint32_t Matching::known_value(int s, uint32_t v) const {  // in A's numbering
  uint32_t p = state.value_partner(s, v);
  return p == MatchSide::kNone || s == 1 ? p : v;
}

uint64_t Matching::known_use(int s, const MatchUse& use) const {
  bool any_slot = !use.is_output && side(s).commutative[use.user];
  uint32_t slot = use.is_output ? 0x7FFFFFFFu : any_slot ? 0 : use.slot;
  uint32_t partner = use.is_output ? state.output_partner(s, use.user) : state.partner(s, use.user);
  uint32_t user = partner == MatchSide::kNone ? (use.is_output ? MatchSide::kNone : ahead_[s][use.user] << 1)
                                              : (s == 0 ? use.user : partner) << 1 | 1;
  return static_cast<uint64_t>(user) << 32 | slot;
}

Matching::Rank Matching::rank(uint32_t x, uint32_t y, const PairWorth& w, int s) const {
  uint32_t there = s == 0 ? y : x;
  int64_t behind = static_cast<int64_t>(there) - static_cast<int64_t>(state.behind(s, s == 0 ? x : y));
  bool same_end = !ahead_[0].empty() && ahead_[0][x] == ahead_[1][y];
  return {(w.same_key ? 2 : 0) + (w.same_op ? 1 : 0), w.same_place, w.gain,
          static_cast<int64_t>(w.operands + w.uses) * 4 + w.alike * 2 + same_end,
          behind >= 0 ? -behind : behind - kFar};
}

void prune(Matching* m) {
  std::vector<uint32_t> work;
  for (uint32_t x = 0; x < m->count(0); ++x)
    if (!m->is_free(0, x)) work.push_back(x);
  while (!work.empty()) {
    uint32_t x = work.back();
    work.pop_back();
    if (m->is_free(0, x)) continue;
    uint32_t y = m->state.partner(0, x);
    PairWorth w = m->state.worth(x, y, false);
    if (w.gain > 0 && w.is_allowed()) continue;
    m->unpair(x, y);
    add_neighbours(m->side(0), x, &work);
  }
}

}  // namespace sg
