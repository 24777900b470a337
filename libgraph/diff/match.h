// Which node of one graph is which node of another: by content and position, never by names or numbers of values.
//
// Model    docs/design/007-diff.md: what may be a pair, and what a match costs in edits. The matcher looks for a cheap
//          one.
// Cost     Near-linear in nodes and operands. Rounds and lists of candidates are bounded, whatever the graphs hold.
// Stable   Equal graphs give equal matches, on every machine and for every seed of the hash tables.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/diff/match_side.h"

namespace sg {

struct GraphMatch {
  static constexpr uint32_t kNone = MatchSide::kNone;
  // [side]: side 0 is A. By position, value number, input and output: the partner on the other side, or kNone.
  std::vector<uint32_t> nodes[2], values[2], inputs[2], outputs[2];
  std::vector<uint8_t> moved;  // by position in A: has a partner, and stands outside of the longest run in order
};

// REQUIRES: both sides made with `words`
GraphMatch match_graphs(const MatchSide& a, const MatchSide& b, MatchWords* words);

// For each position of A that has a partner and stands outside of the longest common run: 1.
std::vector<uint8_t> moved_nodes(const std::vector<uint32_t>& partner_of_a);

}  // namespace sg
