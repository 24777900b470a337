// The regions of a program: modules that match a pattern, what enters them, and where that can be cut.
#pragma once

#include "libgraph/modules/module_pattern.h"
#include "libpasses/chunk/chunk_plan.h"
#include "libpasses/chunk/chunk_refusals.h"

namespace sg {

constexpr uint32_t kNoRegion = 0xFFFFFFFFu;

bool launches_collective(const Graph& graph, NodeId n);

// By value: whether it depends on the data of the step (`user` inputs, and what another rank sends to one that hands in
// nothing) otherwise than by weights that the step has updated: what lies in the memory of a parameter or a buffer is
// none.
std::vector<bool> values_from_data(const Program& program);

// One for each call of a module (chunk_calls.h). With `only_exchanges` those that launch no all-to-all are refused.
ProgramRegions find_regions(const Program& program, const ModulePattern& modules, bool only_exchanges);

// By value: whether it is what another rank sends to one that hands in nothing, or a view of that. In the backward of a
// pipeline's stage these are gradients, though the capture cannot tell.
std::vector<bool> received_values(const Graph& graph);

// By value: whether it depends on a tangent, and so is backward, regardless of its tags.
std::vector<bool> values_from_tangents(const Graph& graph);

// The region's activation; none if nothing that depends on data enters its forward.
ValueId find_activation(const Graph& graph, uint32_t region, const std::vector<NodeId>& nodes,
                        const std::vector<uint32_t>& region_of, const std::vector<bool>& from_data);

// How the rows of an axis are cut: at entries of `unit` rows each.
struct RowCut {
  uint32_t axis = 0;
  Expr entries, unit;
};
// Of axis `axis` with `rows` rows, as all of `together` want it.
RowCut cut_at_entries(ExprPool* exprs, uint32_t axis, Expr rows, const std::vector<RowsTogether>& together);

// Of the region's activation. Refused if there is no activation, or it has too few rows.
Result<RowCut> find_cut(const Program& program, const ChunkOptions& options, const ChunkRegion& region,
                        const std::vector<RowsTogether>& together, const ChunkRefusals& why_not);
// What is too little for the chunks, as "axis 0 of %x has 3 rows: too few for 4 chunks"; empty = it suffices.
std::string too_few_rows(const Program& program, const ChunkOptions& options, ValueId activation, const RowCut& cut);

}  // namespace sg
