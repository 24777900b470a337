// Decides which forward nodes a memory policy recomputes, and writes that to their `recompute` tags. Internal to
// sg-remat.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libpasses/remat/remat.h"
#include "libpasses/remat/remat_model.h"
#include "libpasses/remat/remat_select.h"

namespace sg {

// The ops that these policies keep, regardless of layers and selectors.
bool is_kept_by_default(const Graph& graph, NodeId n);
bool is_kept_by_full(const Graph& graph, NodeId n);

struct RematTags {
  std::vector<NodeId> crossing;  // forward nodes kept only because a later layer uses them
  NodeId head;                   // the forward is left alone from here on; none = no head
  std::vector<NodeId> unshards;  // before the head: gathers of parameters that only it reads, left alone at first
};

// Tags the forward nodes of a program's main graph; the policy `tags` keeps those of the capture. Values that cross
// into a later layer are tagged `crossing`: must_save, or prefer_save if a search decides everything. In the former
// case the head (after the last layer, from its first product on) gets no tag, nor do the gathers of its parameters,
// because their backward follows immediately and would gather them again. A graph that already has copies keeps its
// prefer_save tags, and untagged nodes stay untagged: they record what an earlier run kept to lower the peak, or as a
// layer's border, and what it took for the head. So a second run changes nothing.
RematTags tag_for_recompute(Program* program, RematPolicy policy, const RematSelectors& selectors,
                            const SizeValues& sizes, Recompute crossing = Recompute::must_save);

// Writes tags for the decision on forward nodes that were `open` (by position); those not recomputed are tagged `kept`.
void write_decision(Graph* graph, const RematModel& model, const RematDecision& decision,
                    const std::vector<uint8_t>& open, Recompute kept);

}  // namespace sg
