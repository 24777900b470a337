// What the steps of the matcher share, and the steps; private to the matcher. match.cc says in which order they run.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "libgraph/diff/match_groups.h"
#include "libgraph/diff/match_state.h"

namespace sg {

class Matching {
 public:
  static constexpr uint32_t kNone = MatchSide::kNone;
  static constexpr size_t kMaxCandidates = 32;  // for one node, to bound the work

  Matching(const MatchSide& a, const MatchSide& b) : state(a, b) {}
  void group() { by_operands.emplace(state, MatchGroups::By::operands), by_uses.emplace(state, MatchGroups::By::uses); }

  const MatchSide& side(int s) const { return state.side(s); }
  uint32_t count(int s) const { return static_cast<uint32_t>(side(s).node_count()); }
  bool is_free(int s, uint32_t n) const { return state.is_free(s, n); }

  void pair(uint32_t x, uint32_t y) {
    state.pair(x, y);
    if (by_operands) by_operands->took(x, y), by_uses->took(x, y);
  }
  void unpair(uint32_t x, uint32_t y) {
    state.unpair(x, y);
    by_operands->gave(x, y), by_uses->gave(x, y);
  }

  // What is alone with its class on both sides. `classes`: by side and position.
  void pair_unique(const std::array<std::vector<uint32_t>, 2>& classes);

  // What becomes of a free node, up to nodes with partners: tells copies apart that serve different ends.
  void look_ahead();
  uint32_t ahead(int s, uint32_t n) const { return ahead_[s][n]; }

  // Higher is better: likeness, phase and module, what the pair saves, the neighbours' likeness, nearness to where the
  // node of side s is expected. Phase and module stand before what it saves so that a node is never taken for its copy
  // elsewhere.
  using Rank = std::array<int64_t, 5>;
  Rank rank(uint32_t x, uint32_t y, const PairWorth& w, int s) const;

  MatchState state;
  std::optional<MatchGroups> by_operands, by_uses;  // none until whole cones are matched

 private:
  uint32_t known_value(int s, uint32_t v) const;
  uint64_t known_use(int s, const MatchUse& use) const;
  std::array<std::vector<uint32_t>, 2> ahead_;
  std::vector<uint32_t> buffer_;
};

// Positions of A whose partners are a longest increasing run.
std::vector<uint32_t> longest_run(const std::vector<uint32_t>& partner_of_a);

// What is alone in its class by all that leads to it and all that follows from it, or by either.
void match_whole_cones(Matching* m);

// Forward by operands, then backward by uses. Where several nodes fit: as `copies` says.
enum class Copies : uint8_t { leave, take_clear, take_all };  // take_clear: where more than the place tells them apart
void sweep(Matching* m, Copies copies);

// Free nodes take the partner that neighbours of partners propose, where the proposal is mutual and saves something.
// Clear: nothing but the place in the schedule would have to decide, and no list of candidates is cut. In place: within
// a phase and module, lest a copy elsewhere is taken for the node.
enum class Level : uint8_t { same_key, same_op, any_op };
enum class Votes : uint8_t { clear_in_place, clear, in_place, all };
void vote(Matching* m, Level level, Votes votes);

// What has lost its neighbours on both sides: by key and the neighbours' neighbours, then by place between fixed
// points.
void match_by_surroundings(Matching* m);
void match_between_fixed_points(Matching* m);

// Undoes pairs that are not worth it, and those that were worth it for them.
void prune(Matching* m);

}  // namespace sg
