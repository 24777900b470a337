// Draws made again: a random node and its copies (sg-remat) draw the same numbers in an exported module, and all others
// draw what they would draw without the copies.
//
// PyTorch's generators know no streams: what a node draws depends on what was drawn before it. So the state is kept
// before a draw that comes again, and a copy draws in that state, which the generators do not notice. Where only copies
// are left of a node, and nodes behind it draw first, its draw is made in its place for nothing, with stand-ins for
// what it takes.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "libgraph/graph.h"

namespace sg::python {

struct DrawPlan {
  struct Skipped {
    NodeId node;  // comes later; what is drawn here is its first draw
    uint32_t draw = 0;
  };
  struct Place {
    std::vector<Skipped> skipped;  // right before the node
    uint32_t draw = 0;
    bool is_kept = false;   // the state before it is kept
    bool is_again = false;  // it draws in the state that was kept
  };
  std::unordered_map<NodeId, Place, IdHash> places;  // of the nodes at which there is something to do
  uint32_t count = 0;                                // of draws
};

DrawPlan plan_draws(const Graph& graph);

}  // namespace sg::python
