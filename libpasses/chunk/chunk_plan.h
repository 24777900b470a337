// ChunkPlan: which nodes of a program run once for each chunk, and the resulting state of each value. Decides, and
// changes nothing.
//
// Regions   One for each module that the pattern names; its nodes are those of that module, in both directions, and
//           what autograd adds between them (backward nodes without a module, all of whose operands are chunked by the
//           region).
// Start     The region's activation - the first tensor that enters it and depends on the data, be it another rank's -
//           is cut along `axis`; so are, in the backward, gradients with the shape of the region's results. Other
//           values are sliced where a rule asks for it.
// Rules     propagate states from node to node (axis_rules.h). A node without chunked operands stays as it is and is
//           shared: gathered and cast parameters. Regions of equal rows share their cuts, so that neighbours pass
//           chunks on directly.
// Memory    A write must go to the chunk's own memory; a buffer that sums over the rows takes the chunks in turn.
// Entries   A region that views its rows back into entries ([32, w] as [4, 8, w]) is cut at whole ones, and so are all
//           regions of as many rows: the plan is made again with such cuts.
// Cost      Linear in the nodes, once more for each region that --best-effort leaves whole, and for each such view.
#pragma once

#include <string>
#include <vector>

#include "libpasses/axis/axis_call.h"
#include "libpasses/chunk/chunk.h"

namespace sg {

struct ChunkRegion {
  std::string module;
  std::string parent;  // module that boundary nodes are attributed to
  ValueId activation;
  Along along;          // of the activation
  std::string refusal;  // if not empty, the region is left whole
};

struct BodyNode {
  NodeId node;
  uint32_t region = 0;
  std::vector<SizeEdit> edits;
  std::vector<SliceWish> slices;
  bool accumulates = false;
  bool may_copy = false;  // a view, and nothing writes to its memory after it
  std::vector<WordEdit> words;
  std::vector<Settle> settles;  // by result; may be shorter
  std::optional<Along> share;
  std::vector<ValueId> whole_reads;  // sums over chunks that it uses whole
};

struct ChunkPlan {
  AxisWorld world;
  std::vector<ChunkRegion> regions;
  std::vector<BodyNode> body;     // in schedule order
  std::vector<bool> is_body;      // by node
  std::vector<uint32_t> made_in;  // by value: the region that makes it; kNoDomain = none
  std::vector<bool> full_use;     // by value: something uses the whole of it
};

// The regions of one program, before the plan.
struct ProgramRegions {
  std::vector<ChunkRegion> regions;
  std::vector<uint32_t> of_node;           // by node: its region, or kNoRegion
  std::vector<std::vector<NodeId>> nodes;  // by region
};

// A region that cannot be chunked is an Error with node, rule and remedy; if `refused` is given the error is added to
// it instead, and the region is refused in `found`, too: it stays whole.
Result<ChunkPlan> plan_chunks(const Program& program, const ChunkOptions& options, ProgramRegions* found,
                              std::vector<Error>* refused);

}  // namespace sg
