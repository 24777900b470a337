#include "libgraph/match.h"

#include <algorithm>
#include <array>

#include "libgraph/match_groups.h"
#include "libgraph/match_ports.h"
#include "libgraph/match_state.h"

namespace sg {
namespace {

constexpr uint32_t kNone = MatchSide::kNone;

// Positions of A whose partners are a longest increasing run.
std::vector<uint32_t> longest_run(const std::vector<uint32_t>& partner_of_a) {
  std::vector<uint32_t> tails, previous(partner_of_a.size(), kNone), run;      // tails: by length - 1, positions of A
  for (uint32_t x = 0; x < partner_of_a.size(); ++x) {
    uint32_t y = partner_of_a[x];
    if (y == kNone) continue;
    auto at = std::lower_bound(tails.begin(), tails.end(), y, [&](uint32_t t, uint32_t v) { return partner_of_a[t] < v; });
    previous[x] = at == tails.begin() ? kNone : *(at - 1);
    if (at == tails.end()) tails.push_back(x);
    else *at = x;
  }
  for (uint32_t x = tails.empty() ? kNone : tails.back(); x != kNone; x = previous[x]) run.push_back(x);
  std::reverse(run.begin(), run.end());
  return run;
}

class Matcher {
 public:
  Matcher(const MatchSide& a, const MatchSide& b, MatchWords* words) : state_(a, b), words_(*words) {}

  GraphMatch run() {
    match_ports(&state_, &words_);
    match_whole_cones();
    MatchGroups by_operands(state_, MatchGroups::By::operands), by_uses(state_, MatchGroups::By::uses);
    operands_ = &by_operands, uses_ = &by_uses;
    settle(Level::same_key);
    match_left_outputs(&state_, false);
    settle(Level::same_op);
    match_by_surroundings();
    settle(Level::same_op);
    match_between_fixed_points();
    settle(Level::any_op);
    prune();
    settle(Level::any_op);
    match_left_outputs(&state_, true);
    GraphMatch out = std::move(state_.match());
    out.moved = moved_nodes(out.nodes[0]);
    return out;
  }

 private:
  enum class Level : uint8_t { same_key, same_op, any_op };
  static constexpr int kMaxRounds = 24;
  static constexpr size_t kMaxCandidates = 32;
  static constexpr int64_t kFar = int64_t{1} << 40;

  const MatchSide& side(int s) const { return state_.side(s); }
  uint32_t count(int s) const { return static_cast<uint32_t>(side(s).node_count()); }

  void pair(uint32_t x, uint32_t y) {
    state_.pair(x, y);
    if (operands_) operands_->took(x, y), uses_->took(x, y);
  }
  void unpair(uint32_t x, uint32_t y) {
    state_.unpair(x, y);
    operands_->gave(x, y), uses_->gave(x, y);
  }

  // --- whole cones ---

  // What is alone with its class on both sides.
  void pair_unique(const std::array<std::vector<uint32_t>, 2>& classes) {
    struct Seen { uint32_t count[2] = {0, 0}, node[2] = {0, 0}; };
    uint32_t limit = 0;
    for (const auto& list : classes)
      for (uint32_t c : list) limit = std::max(limit, c + 1);
    std::vector<Seen> seen(limit);
    for (int s = 0; s < 2; ++s)
      for (uint32_t n = 0; n < count(s); ++n)
        if (state_.is_free(s, n)) ++seen[classes[s][n]].count[s], seen[classes[s][n]].node[s] = n;
    for (const Seen& c : seen)
      if (c.count[0] == 1 && c.count[1] == 1) pair(c.node[0], c.node[1]);
  }

  void match_whole_cones() {
    std::array<std::vector<uint32_t>, 2> down = classes_down(state_), up = classes_up(state_), both;
    SequenceTable table;
    for (int s = 0; s < 2; ++s)
      for (uint32_t n = 0; n < count(s); ++n) both[s].push_back(table.intern(std::array<uint32_t, 2>{down[s][n], up[s][n]}));
    pair_unique(both);
    pair_unique(down);
    pair_unique(up);
  }

  // --- sweeps ---

  void settle(Level level) {
    for (int round = 0; round < kMaxRounds; ++round) {
      size_t before = state_.pairs();
      sweep(Copies::leave);
      if (state_.pairs() == before) vote(level, Votes::clear_in_place);
      if (state_.pairs() == before) look_ahead(), sweep(Copies::take_clear);
      if (state_.pairs() == before) vote(level, Votes::clear);
      if (state_.pairs() == before) vote(level, Votes::in_place);
      if (state_.pairs() == before) vote(level, Votes::all);
      if (state_.pairs() == before) sweep(Copies::take_all);
      if (state_.pairs() == before) return;
    }
  }

  // Forward by operands, then backward by uses. Where several nodes fit: as `copies` says.
  enum class Copies : uint8_t { leave, take_clear, take_all };   // take_clear: where more than the place tells them apart
  void sweep(Copies copies) {
    for (uint32_t y = 0; y < count(1); ++y)
      if (state_.is_free(1, y)) take(operands_->fit(y), y, copies);
    for (uint32_t y = count(1); y-- > 0;)
      if (state_.is_free(1, y)) take(uses_->fit(y), y, copies);
  }

  void take(const MatchGroups::Fit& fit, uint32_t y, Copies copies) {
    if (fit.free_a == 0) return;
    bool is_clear = fit.free_a == 1 && fit.free_b == 1;
    if (is_clear) {
      for (uint32_t x : fit.of_a)
        if (state_.is_free(0, x)) return pair(x, y);
    } else if (copies != Copies::leave) {
      share_out(fit, copies == Copies::take_all);
    }
  }

  // What becomes of a node, up to nodes with partners: tells copies apart that serve different ends.
  void look_ahead() {
    SequenceTable table;
    std::vector<uint64_t> uses;
    for (int s = 0; s < 2; ++s) {
      const MatchSide& here = side(s);
      ahead_[s].assign(count(s), 0);
      for (uint32_t n = count(s); n-- > 0;) {
        if (!state_.is_free(s, n)) continue;
        buffer_ = {here.key[n]};
        for (uint32_t v : here.operands(n)) buffer_.push_back(known_value(s, v));
        if (here.commutative[n]) std::sort(buffer_.begin() + 1, buffer_.end());
        for (uint32_t v = here.first_result[n]; v < here.first_result[n + 1]; ++v) {
          uses.clear();
          for (const MatchUse& use : here.uses(v)) uses.push_back(known_use(s, use));
          std::sort(uses.begin(), uses.end());
          buffer_.push_back(static_cast<uint32_t>(uses.size()));
          for (uint64_t u : uses) buffer_.push_back(static_cast<uint32_t>(u >> 32)), buffer_.push_back(static_cast<uint32_t>(u));
        }
        ahead_[s][n] = table.intern(buffer_);
      }
    }
  }

  uint32_t known_value(int s, uint32_t v) const {       // as A calls it
    uint32_t p = state_.value_partner(s, v);
    return p == kNone || s == 1 ? p : v;
  }

  uint64_t known_use(int s, const MatchUse& use) const {
    bool any_slot = !use.is_output && side(s).commutative[use.user];
    uint32_t slot = use.is_output ? 0x7FFFFFFFu : any_slot ? 0 : use.slot;
    uint32_t partner = use.is_output ? state_.output_partner(s, use.user) : state_.partner(s, use.user);
    uint32_t user = partner == kNone ? (use.is_output ? kNone : ahead_[s][use.user] << 1) : (s == 0 ? use.user : partner) << 1 | 1;
    return static_cast<uint64_t>(user) << 32 | slot;
  }

  // Several nodes of A, several of B, all alike in their operands (or uses).
  void share_out(const MatchGroups::Fit& fit, bool all) {
    std::vector<uint32_t> a, b;
    for (uint32_t x : fit.of_a) if (state_.is_free(0, x)) a.push_back(x);
    for (uint32_t y : fit.of_b) if (state_.is_free(1, y)) b.push_back(y);
    if (a.size() * b.size() <= kMaxCandidates * kMaxCandidates) share_by_worth(a, b, all);
    if (!all) return;
    share_by(a, b, [&](int s, uint32_t n) { return std::array<uint32_t, 2>{ahead_[s][n], side(s).place[n]}; });
    share_by(a, b, [&](int s, uint32_t n) { return std::array<uint32_t, 2>{side(s).place[n], 0}; });
    share_by(a, b, [&](int, uint32_t) { return std::array<uint32_t, 2>{0, 0}; });
  }

  // Best pairs first. They are alike in what they take: one that stays in its phase and module is the node, and others are
  // copies of it, however many use them.
  void share_by_worth(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, bool all) {
    struct Choice { Rank rank; uint32_t x, y; };
    std::vector<Choice> choices;
    for (uint32_t x : a)
      for (uint32_t y : b) {
        Rank r = rank(x, y, state_.worth(x, y, true), 1);
        r[0] = ahead_[0][x] == ahead_[1][y];           // they have one key anyway
        choices.push_back({{r[1], r[0], r[2], r[3], r[4]}, x, y});
      }
    std::stable_sort(choices.begin(), choices.end(), [](const Choice& p, const Choice& q) { return p.rank > q.rank; });
    auto is_open = [&](const Choice& c) { return state_.is_free(0, c.x) && state_.is_free(1, c.y); };
    auto alike = [](const Choice& c, const Choice& d) { return std::equal(c.rank.begin(), c.rank.end() - 1, d.rank.begin()); };
    for (size_t i = 0; i < choices.size(); ++i) {
      if (!is_open(choices[i])) continue;
      bool is_clear = true;
      for (size_t j = i + 1; !all && is_clear && j < choices.size() && alike(choices[i], choices[j]); ++j)
        is_clear = !(is_open(choices[j]) && (choices[j].x == choices[i].x || choices[j].y == choices[i].y));
      if (is_clear) pair(choices[i].x, choices[i].y);
      else if (!all) break;                            // what is ranked lower must not take what these are about
    }
  }

  template <class ClassOf>
  void share_by(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, const ClassOf& class_of) {
    SequenceTable table;
    std::vector<std::vector<uint32_t>> waiting;
    for (size_t i = a.size(); i-- > 0;) {
      if (!state_.is_free(0, a[i])) continue;
      uint32_t c = table.intern(class_of(0, a[i]));
      waiting.resize(table.size());
      waiting[c].push_back(a[i]);
    }
    for (uint32_t y : b) {
      uint32_t c = state_.is_free(1, y) ? table.find(class_of(1, y)) : kNone;
      if (c == kNone || waiting[c].empty()) continue;
      pair(waiting[c].back(), y);
      waiting[c].pop_back();
    }
  }

  // --- votes ---

  // Higher is better: likeness, phase and module, what the pair saves, the neighbours' likeness, nearness to where the node of
  // side s is expected. Phase and module stand before what it saves so that a node is never taken for its copy elsewhere.
  using Rank = std::array<int64_t, 5>;
  Rank rank(uint32_t x, uint32_t y, const PairWorth& w, int s) const {
    uint32_t there = s == 0 ? y : x;
    int64_t behind = static_cast<int64_t>(there) - static_cast<int64_t>(state_.behind(s, s == 0 ? x : y));
    bool same_end = !ahead_[0].empty() && ahead_[0][x] == ahead_[1][y];
    return {(w.same_key ? 2 : 0) + (w.same_op ? 1 : 0), w.same_place, w.gain,
            static_cast<int64_t>(w.operands + w.uses) * 4 + w.alike * 2 + same_end, behind >= 0 ? -behind : behind - kFar};
  }

  // Clear: nothing but the place in the schedule would have to decide, and no list of candidates is cut. In place: within a
  // phase and module, lest a copy elsewhere is taken for the node.
  enum class Votes : uint8_t { clear_in_place, clear, in_place, all };

  void vote(Level level, Votes votes) {
    must_be_clear_ = votes == Votes::clear_in_place || votes == Votes::clear;
    only_same_place_ = votes == Votes::clear_in_place || votes == Votes::in_place;
    vote(level, false), vote(level, true);
  }

  void vote(Level level, bool backward) {
    for (uint32_t i = 0; i < count(1); ++i) {
      uint32_t y = backward ? count(1) - 1 - i : i;
      if (!state_.is_free(1, y) || operands_->fit(y).free_a > 0) continue;   // copies wait for `sweep`
      uint32_t x = best_partner(1, y, level);
      if (x != kNone && best_partner(0, x, level) == y) pair(x, y);
    }
  }

  bool fits(Level level, uint32_t x, uint32_t y) const {
    return level == Level::any_op || (level == Level::same_op ? side(0).op[x] == side(1).op[y] : side(0).key[x] == side(1).key[y]);
  }

  uint32_t best_partner(int s, uint32_t n, Level level) {
    propose(s, n);
    uint32_t best = kNone;
    bool is_clear = true;
    Rank best_rank{};
    for (uint32_t c : candidates_) {
      uint32_t x = s == 0 ? n : c, y = s == 0 ? c : n;
      if (!fits(level, x, y)) continue;
      PairWorth w = state_.worth(x, y, true);
      if (w.gain <= 0 || !w.is_allowed() || (only_same_place_ && !w.same_place)) continue;
      Rank r = rank(x, y, w, s);
      bool is_rival = best != kNone && std::equal(r.begin(), r.end() - 1, best_rank.begin());
      if (is_rival) is_clear = false;
      if (best != kNone && !is_rival && r > best_rank) is_clear = true;
      if (best == kNone || r > best_rank || (r == best_rank && c < best)) best = c, best_rank = r;
    }
    return must_be_clear_ && !is_clear ? kNone : best;
  }

  // Fills candidates_ with free nodes of the other side that neighbours' partners have in n's place.
  void propose(int s, uint32_t n) {
    candidates_.clear();
    uint32_t near = state_.expected(s, n);
    const MatchSide& here = side(s);
    for (uint32_t v : here.operands(n))
      if (uint32_t p = state_.value_partner(s, v); p != kNone) propose_users(1 - s, p, near);
    for (uint32_t v = here.first_result[n]; v < here.first_result[n + 1]; ++v) {
      std::span<const MatchUse> uses = here.uses(v);
      for (const MatchUse& use : uses.first(std::min(uses.size(), kMaxCandidates))) propose_operand(s, use);
    }
    if (here.operands(n).empty() && candidates_.empty()) propose_near(s, n, near);
    std::sort(candidates_.begin(), candidates_.end());
    candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
  }

  // The free users of a value, those around `near` only where there are many.
  void propose_users(int s, uint32_t value, uint32_t near) {
    std::span<const MatchUse> uses = side(s).uses(value);
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
    if (use.is_output || !state_.is_free(s, use.user)) return false;
    candidates_.push_back(use.user);
    return true;
  }

  void propose_operand(int s, const MatchUse& use) {
    uint32_t there = use.is_output ? state_.output_partner(s, use.user) : state_.partner(s, use.user);
    if (there == kNone) return;
    const MatchSide& other = side(1 - s);
    auto add = [&](uint32_t value) {
      uint32_t m = other.maker[value];
      if (m != kNone && state_.is_free(1 - s, m)) candidates_.push_back(m);
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

  // Nodes without neighbours have only their place.
  void propose_near(int s, uint32_t, uint32_t near) {
    uint32_t begin = near > kMaxCandidates ? near - kMaxCandidates : 0;
    uint32_t end = std::min<uint32_t>(count(1 - s), near + static_cast<uint32_t>(kMaxCandidates));
    for (uint32_t m = begin; m < end; ++m)
      if (state_.is_free(1 - s, m) && side(1 - s).operands(m).empty()) candidates_.push_back(m);
  }

  // --- what has lost its neighbours ---

  // Nodes by their key and those of their neighbours, partners told apart; then by these classes once more.
  void match_by_surroundings() {
    std::array<std::vector<uint32_t>, 2> classes = {side(0).key, side(1).key};
    for (int radius = 1; radius <= 2; ++radius) {
      SequenceTable table;
      std::array<std::vector<uint32_t>, 2> next;
      for (int s = 0; s < 2; ++s) {
        next[s].assign(count(s), 0);
        for (uint32_t n = 0; n < count(s); ++n)
          if (state_.is_free(s, n)) next[s][n] = table.intern(surroundings(s, n, classes[s]));
      }
      classes = next;
      if (radius == 2) pair_unique(classes);
    }
  }

  uint32_t colour(int s, uint32_t n, const std::vector<uint32_t>& classes) const {
    uint32_t p = state_.partner(s, n);
    return p == kNone ? classes[n] * 2 : (s == 0 ? n : p) * 2 + 1;
  }

  const std::vector<uint32_t>& surroundings(int s, uint32_t n, const std::vector<uint32_t>& classes) {
    const MatchSide& here = side(s);
    buffer_ = {here.key[n]};
    for (uint32_t v : here.operands(n)) buffer_.push_back(here.maker[v] == kNone ? kNone - 1 : colour(s, here.maker[v], classes));
    if (here.commutative[n]) std::sort(buffer_.begin() + 1, buffer_.end());
    for (uint32_t v = here.first_result[n]; v < here.first_result[n + 1]; ++v) {
      buffer_.push_back(kNone);
      size_t begin = buffer_.size();
      for (const MatchUse& use : here.uses(v)) buffer_.push_back(use.is_output ? kNone - 2 : colour(s, use.user, classes));
      std::sort(buffer_.begin() + static_cast<ptrdiff_t>(begin), buffer_.end());
    }
    return buffer_;
  }

  // Free nodes between two neighbouring fixed points of both schedules, aligned by key.
  void match_between_fixed_points() {
    std::vector<uint32_t> fixed = longest_run(state_.match().nodes[0]);
    std::vector<std::pair<uint32_t, uint32_t>> found;
    uint32_t x = 0, y = 0;
    for (size_t i = 0; i <= fixed.size(); ++i) {
      uint32_t end_x = i < fixed.size() ? fixed[i] : count(0), end_y = i < fixed.size() ? state_.partner(0, fixed[i]) : count(1);
      align(free_between(0, x, end_x), free_between(1, y, end_y), &found);
      x = end_x + 1, y = end_y + 1;
    }
    for (auto [p, q] : found) pair(p, q);
  }

  std::vector<uint32_t> free_between(int s, uint32_t begin, uint32_t end) const {
    std::vector<uint32_t> out;
    for (uint32_t n = begin; n < end; ++n)
      if (state_.is_free(s, n)) out.push_back(n);
    return out;
  }

  // A longest common subsequence of keys; where that is too much work, of the keys that occur once on each side.
  void align(std::vector<uint32_t> a, std::vector<uint32_t> b, std::vector<std::pair<uint32_t, uint32_t>>* found) {
    constexpr size_t kMaxCells = 1 << 16;
    if (a.empty() || b.empty()) return;
    auto key = [&](int s, uint32_t n) { return side(s).key[n]; };
    if (a.size() * b.size() > std::min(kMaxCells, cells_left_)) return;
    cells_left_ -= a.size() * b.size();
    size_t width = b.size() + 1;
    std::vector<uint32_t> best((a.size() + 1) * width, 0);
    for (size_t i = a.size(); i-- > 0;)
      for (size_t j = b.size(); j-- > 0;)
        best[i * width + j] = key(0, a[i]) == key(1, b[j]) ? best[(i + 1) * width + j + 1] + 1
                                                         : std::max(best[(i + 1) * width + j], best[i * width + j + 1]);
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      if (key(0, a[i]) == key(1, b[j])) found->push_back({a[i++], b[j++]});
      else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) ++i;
      else ++j;
    }
  }

  // --- pairs that are not worth it ---

  void prune() {
    std::vector<uint32_t> work;
    for (uint32_t x = 0; x < count(0); ++x)
      if (!state_.is_free(0, x)) work.push_back(x);
    while (!work.empty()) {
      uint32_t x = work.back();
      work.pop_back();
      if (state_.is_free(0, x)) continue;
      uint32_t y = state_.partner(0, x);
      PairWorth w = state_.worth(x, y, false);
      if (w.gain > 0 && w.is_allowed()) continue;
      unpair(x, y);
      add_neighbours(x, &work);
    }
  }

  void add_neighbours(uint32_t x, std::vector<uint32_t>* work) const {
    const MatchSide& a = side(0);
    for (uint32_t v : a.operands(x))
      if (a.maker[v] != kNone) work->push_back(a.maker[v]);
    for (uint32_t v = a.first_result[x]; v < a.first_result[x + 1]; ++v)
      for (const MatchUse& use : a.uses(v))
        if (!use.is_output) work->push_back(use.user);
  }

  MatchState state_;
  MatchWords& words_;
  MatchGroups* operands_ = nullptr;
  MatchGroups* uses_ = nullptr;
  std::array<std::vector<uint32_t>, 2> ahead_;      // by side and position: see look_ahead
  std::vector<uint32_t> candidates_, buffer_;
  size_t cells_left_ = 1 << 24;
  bool only_same_place_ = false, must_be_clear_ = false;   // see Votes
};

}  // namespace

GraphMatch match_graphs(const MatchSide& a, const MatchSide& b, MatchWords* words) { return Matcher(a, b, words).run(); }

std::vector<uint8_t> moved_nodes(const std::vector<uint32_t>& partner_of_a) {
  std::vector<uint8_t> moved(partner_of_a.size());
  for (size_t x = 0; x < moved.size(); ++x) moved[x] = partner_of_a[x] != kNone;
  for (uint32_t x : longest_run(partner_of_a)) moved[x] = 0;
  return moved;
}

namespace {

// A state with the partners of `match`, for counting.
MatchState state_of(const MatchSide& a, const MatchSide& b, const GraphMatch& match) {
  MatchState state(a, b);
  state.match() = match;
  return state;
}

}  // namespace

MatchCost match_cost(const MatchSide& a, const MatchSide& b, const GraphMatch& match, bool with_order) {
  MatchCost cost;
  MatchState state = state_of(a, b, match);
  cost.added = static_cast<size_t>(std::count(match.nodes[1].begin(), match.nodes[1].end(), kNone));
  for (uint32_t x = 0; x < a.node_count(); ++x) {
    uint32_t y = match.nodes[0][x];
    if (y == kNone) {
      ++cost.removed;
      continue;
    }
    PairWorth w = state.worth(x, y, false);
    cost.ops += !w.same_op;
    cost.literals += w.same_op && !w.same_key;
    cost.operands += std::max(a.operands(x).size(), b.operands(y).size()) - w.operands;
  }
  if (!with_order) return cost;
  std::vector<uint8_t> moved = moved_nodes(match.nodes[0]);
  cost.moved = static_cast<size_t>(std::count(moved.begin(), moved.end(), 1));
  return cost;
}

bool may_be_partners(const MatchSide& a, const MatchSide& b, const GraphMatch& match, uint32_t node_a, uint32_t node_b) {
  return state_of(a, b, match).worth(node_a, node_b, false).is_allowed();
}

}  // namespace sg
