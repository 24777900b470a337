#include "libgraph/diff/match.h"

#include <utility>

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

}  // namespace sg
