// Applies a ChunkPlan: creates copies, slices, concatenations and sums, and erases the originals.
//
// Order     copies stand where their original stood, chunk 0 first: data, effects and collectives keep their order
// Joined    after the last copy: `cat` along the axis; sums add the last chunk first, as autograd does
// Metadata  bodies have role "body", index and original; slices "split_boundary"; joined values "materialization"
#pragma once

#include "libpasses/chunk/chunk_plan.h"

namespace sg {

struct ChunkCounts {
  size_t nodes = 0;  // originals
  size_t copies = 0, slices = 0, joined = 0, summed = 0;
  friend bool operator==(const ChunkCounts&, const ChunkCounts&) = default;
};

Result<ChunkCounts> copy_chunks(Program* program, const ChunkPlan& plan, int64_t chunks);

}  // namespace sg
