#include "libgraph/diff/match.h"

#include <algorithm>

#include "libgraph/diff/match_ports.h"
#include "libgraph/diff/match_steps.h"

namespace sg {
namespace {

// Alternates sweeps and votes until neither finds more pairs, the most certain first.
void settle(Matching* m, Level level) {
  constexpr int kMaxRounds = 24;
  for (int round = 0; round < kMaxRounds; ++round) {
    size_t before = m->state.pairs();
    auto found_none = [&] { return m->state.pairs() == before; };
    sweep(m, Copies::leave);
    if (found_none()) vote(m, level, Votes::clear_in_place);
    if (found_none()) m->look_ahead(), sweep(m, Copies::take_clear);
    if (found_none()) vote(m, level, Votes::clear);
    if (found_none()) vote(m, level, Votes::in_place);
    if (found_none()) vote(m, level, Votes::all);
    if (found_none()) sweep(m, Copies::take_all);
    if (found_none()) return;
  }
}

// A matching state with the partners of `match`.
MatchState state_of(const MatchSide& a, const MatchSide& b, const GraphMatch& match) {
  MatchState state(a, b);
  state.match() = match;
  return state;
}

}  // namespace

GraphMatch match_graphs(const MatchSide& a, const MatchSide& b, MatchWords* words) {
  Matching m(a, b);
  match_ports(&m.state, words);
  match_whole_cones(&m);
  m.group();
  settle(&m, Level::same_key);
  match_outputs_by_values(&m.state);
  settle(&m, Level::same_op);
  match_by_surroundings(&m);
  settle(&m, Level::same_op);
  match_between_fixed_points(&m);
  settle(&m, Level::any_op);
  prune(&m);
  settle(&m, Level::any_op);
  match_outputs_by_values(&m.state);
  match_outputs_by_position(&m.state);
  GraphMatch out = std::move(m.state.match());
  out.moved = moved_nodes(out.nodes[0]);
  return out;
}

std::vector<uint8_t> moved_nodes(const std::vector<uint32_t>& partner_of_a) {
  std::vector<uint8_t> moved(partner_of_a.size());
  for (size_t x = 0; x < moved.size(); ++x) moved[x] = partner_of_a[x] != MatchSide::kNone;
  for (uint32_t x : longest_run(partner_of_a)) moved[x] = 0;
  return moved;
}

MatchCost match_cost(const MatchSide& a, const MatchSide& b, const GraphMatch& match, bool with_order) {
  MatchCost cost;
  MatchState state = state_of(a, b, match);
  cost.added = static_cast<size_t>(std::count(match.nodes[1].begin(), match.nodes[1].end(), MatchSide::kNone));
  for (uint32_t x = 0; x < a.node_count(); ++x) {
    uint32_t y = match.nodes[0][x];
    if (y == MatchSide::kNone) {
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

bool may_be_partners(const MatchSide& a, const MatchSide& b, const GraphMatch& match, uint32_t node_a,
                     uint32_t node_b) {
  return state_of(a, b, match).worth(node_a, node_b, false).is_allowed();
}

}  // namespace sg
