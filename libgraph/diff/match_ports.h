// Inputs and outputs: the first fixed points of a match; private to the matcher.
#pragma once

#include <array>
#include <vector>

#include "libgraph/diff/match_state.h"

namespace sg {

// Classes of nodes by all that follows from them: equal for two nodes exactly when the graphs below them are. By side
// and position. Outputs are told apart by their partners.
std::array<std::vector<uint32_t>, 2> classes_up(const MatchState& state);
// The same by all that leads to them. Inputs are told apart by their partners.
std::array<std::vector<uint32_t>, 2> classes_down(const MatchState& state);

// Pairs inputs and outputs: by what they are (kind and FQN, the input that a gradient is of), by how they are used,
// then by position among those of a kind and type.
void match_ports(MatchState* state, MatchWords* words);

// Outputs that have no partner yet: by the partners of their values, then by position between such; or by position
// alone.
void match_outputs_by_values(MatchState* state);
void match_outputs_by_position(MatchState* state);

}  // namespace sg
