// Whether chunks and the rest of the step stay out of each other's memory.
#pragma once

#include <optional>
#include <string>

#include "libpasses/chunk/chunk_plan.h"

namespace sg {

struct MemoryConflict {
  NodeId node;
  uint32_t region = 0;
  std::string message;
};

// The first write that would reach another chunk or a whole value, or that comes from outside and misses chunks that
// are copies of its target.
std::optional<MemoryConflict> find_memory_conflict(const Program& program, const ChunkPlan& plan);

// Sets BodyNode::may_copy: a chunk may lie with gaps where the whole has none, so a view of it becomes a copy.
void find_views_that_may_copy(const Program& program, ChunkPlan* plan);

}  // namespace sg
