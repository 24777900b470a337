// AutoPlan: the part of a step around one amplifier that runs once for each chunk of its rows, forward and backward
// together. Internal to sg-chunk --auto.
//
// States    of everything that depends on the amplifier, by the axis rules (axis_rules.h)
// Body      what lies between the amplifier and the last node that takes a chunked value of its size; that is a part of
//           the step which needs nothing from behind it. Nodes that fill such a value, or make one from what does not
//           depend on the amplifier, join it
// Refused   a body node without a rule; one that writes to what is not a chunk's own, or draws random numbers; and a
//           body that cannot stand in one place, because something between its nodes reads or writes the same memory
// Ranks     an all-reduce of rows, and its wait, may be in the body: a vocabulary that is split over ranks. Each chunk
//           has its own; all ranks must cut alike, and meet collectives in the same order
// Cost      linear in the nodes behind the amplifier
#pragma once

#include <string>
#include <vector>

#include "libpasses/axis/axis_call.h"

namespace sg {

// Where an amplifier is cut: an axis of one of its operands, `unit` entries at a time.
struct AutoCut {
  ValueId operand;
  uint32_t axis = 0;
  Expr rows, unit;
};

struct AutoNode {
  NodeId node;
  std::vector<SizeEdit> edits;
  std::vector<SliceWish> slices;
};

struct AutoPlan {
  NodeId amplifier;
  AutoCut cut;
  AxisWorld world;
  std::vector<AutoNode> body;    // in schedule order
  std::vector<bool> is_body;     // by node
  std::vector<ValueId> results;  // that somebody else takes, in schedule order
  std::vector<NodeId> behind;    // stand between nodes of the body, and depend on it: they go behind the calls
  bool has_collectives = false;  // in the body
  bool asks_ranks = false;       // collectives stand in another order: all ranks must have the same
  NodeId place;                  // the calls stand before this node; it may be one of the body's
  int64_t elements = 0;          // of the amplifier's result, for the sizes of the capture

  const Expr& rows() const { return cut.rows; }
};

// The places where `amplifier` may be cut, the best first: axes of operands that hold the data of the step.
std::vector<AutoCut> possible_cuts(const Program& program, NodeId amplifier);

// Rewrites what stands in the way (auto_chunk_rewrite.h) in `program`, also when it fails: give it a copy. Errors name
// node and rule. `reached`: how many nodes behind the amplifier could be chunked; of several errors the one that came
// furthest tells most.
Result<AutoPlan> plan_auto_chunk(Program* program, NodeId amplifier, const AutoCut& cut, size_t* reached);

}  // namespace sg
