// AutoPlan: the part of a step around one amplifier that runs once for each chunk of its rows, forward and backward
// together. Internal to sg-chunk --auto.
//
// States    of everything that depends on the amplifier, by the axis rules (axis_rules.h)
// Body      the nodes between the amplifier and the last node that takes a chunked value of its size; they must need
//           nothing from later nodes. Nodes that fill such a value, or compute one independently of the amplifier,
//           join the body
// Refused   a body node without a rule; one that writes to memory that is not the chunk's own, or draws random numbers;
//           and a body that cannot be contiguous, because a node in between reads or writes the same memory
// Ranks     collectives of rows, and their waits, may be in the body: sums for a vocabulary sharded over ranks, gathers
//           and scatters of rows. Each chunk launches its own; all ranks must cut alike, and keep to one order
// Cost      linear in the nodes after the amplifier
#pragma once

#include <string>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libpasses/axis/axis_call.h"

namespace sg {

// Where an amplifier is cut: an axis of one of its operands, in multiples of `unit` entries. If `runs` is given, the
// axis is that many runs of the rows, [batch, length] as one, and a chunk has its rows of each run (axis_state.h).
struct AutoCut {
  ValueId operand;
  uint32_t axis = 0;
  Expr rows, unit, runs;

  Along along() const { return {0, axis, unit, runs}; }
  // Entries of the axis that one row of the cut stands for, a row of options: `length` if it is an entry of the batch.
  // 1 if only the data tells.
  int64_t weight(const ExprPool& exprs, const SizeValues& sizes) const {
    return exprs.evaluate(unit, sizes).value_or(1) * (runs ? exprs.evaluate(runs, sizes).value_or(1) : 1);
  }
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
  std::vector<ValueId> results;  // with users outside the body, in schedule order
  std::vector<NodeId> behind;    // between nodes of the body, but depend on it: moved after the calls
  bool has_collectives = false;  // in the body
  bool asks_ranks = false;       // the order of collectives changes: all ranks must have the same
  NodeId place;                  // the calls are inserted before this node; it may be one of the body's
  int64_t elements = 0;          // of the amplifier's result, at the captured sizes

  const Expr& rows() const { return cut.rows; }
};

// The possible cuts of `amplifier`, best first: axes of operands that hold the data of the step.
std::vector<AutoCut> possible_cuts(const Program& program, NodeId amplifier);

// Rewrites obstacles (auto_chunk_rewrite.h) in `program`, even if it then fails: pass a copy. Errors name node and
// rule. `reached`: how many nodes after the amplifier could be chunked; of several errors, the one that reached
// furthest is the most informative.
Result<AutoPlan> plan_auto_chunk(Program* program, NodeId amplifier, const AutoCut& cut, size_t* reached);

}  // namespace sg
