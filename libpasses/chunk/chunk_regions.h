// The regions of a program: modules that match a pattern, what enters them, and where that can be cut.
#pragma once

#include "libpasses/chunk/chunk_plan.h"
#include "libpasses/chunk/chunk_refusals.h"

namespace sg {

constexpr uint32_t kNoRegion = 0xFFFFFFFFu;

// Assigns nodes to regions, in order of their first node. `region_of` is by node.
std::vector<ChunkRegion> find_regions(const Graph& graph, const ModulePattern& pattern,
                                      std::vector<uint32_t>* region_of);

// Leaves regions whole that launch no all-to-all; false if none remains. `nodes`: by region.
bool leave_without_exchange(const Graph& graph, const std::vector<std::vector<NodeId>>& nodes,
                            std::vector<ChunkRegion>* regions);

// By value: whether it depends on the data of the step (`user` inputs) otherwise than by weights that the step has
// updated: what lies in the memory of a parameter or a buffer is none.
std::vector<bool> values_from_data(const Program& program);

// By value: whether it depends on a tangent, and so is backward, regardless of its tags.
std::vector<bool> values_from_tangents(const Graph& graph);

// The region's activation; none if nothing that depends on data enters its forward.
ValueId find_activation(const Graph& graph, uint32_t region, const std::vector<NodeId>& nodes,
                        const std::vector<uint32_t>& region_of, const std::vector<bool>& from_data);

// The axis of the region's activation to cut. Refused if there is no activation, or it has too few rows.
Result<uint32_t> find_cut(const Program& program, const ChunkPlanOptions& options, const ChunkRegion& region,
                          const ChunkRefusals& why_not);

}  // namespace sg
