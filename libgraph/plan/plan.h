// MemoryPlan: a place in one arena for every piece of memory that a graph makes, before anything runs.
//
// Placed    Storages inside (liveness.h) whose size is known, each at one offset for all of its life. Two that are in
//           use at the same position never overlap, except that a result lies in what it takes over, and a call's
//           results lie in its frame.
// Pooled    Storages of data-dependent size: the run takes them from its pool.
// Outside   Inputs and everything in their memory: no offset.
// Host      Storages in host memory (LiveStorage::is_host) lie in a separate arena, by the same rules.
// Frames    While sg.call runs, the arena of its body (bodies[call.body]) lies at frame offset of the call: the body's
//           storage s is at frame + bodies[...].offset_of(s). The body's outputs lie where the call's results are.
//           Bodies have one plan, however often they are called.
// Alignment Offsets are multiples of 64; those of storages below 64 bytes, of the next power of two, so that scalars
//           share a line. No storage is padded at its end: arena_bytes counts what lies between storages, and nothing
//           else.
// Limits    Sizes of more than 2^62 bytes together: overflow, arena_bytes is INT64_MAX, nothing is placed.
//
// A pure function: equal liveness and options give equal plans on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/plan/liveness.h"
#include "libgraph/plan/pack.h"

namespace sg {

struct PlanOptions {
  PackOptions packing;
  // By position of the outermost graph: bytes that the node's kernel needs while it runs. Shorter than the schedule =
  // none for the rest. For those of a body, see body_scratch.
  std::vector<int64_t> scratch_bytes;
  std::vector<std::vector<int64_t>> body_scratch;  // by NestedId, then position; may be shorter
};

struct MemoryPlan {
  static constexpr int64_t kNoOffset = -1;

  std::vector<int64_t> offsets;          // by StorageId, into its arena; kNoOffset = outside or pooled
  std::vector<int64_t> frame_offsets;    // by Liveness::calls
  std::vector<int64_t> scratch_offsets;  // by position; kNoOffset = none asked for
  std::vector<StorageId> pooled;         // ascending
  int64_t arena_bytes = 0;
  int64_t host_bytes = 0;         // the host's arena; INT64_MAX on overflow
  int64_t lower_bound_bytes = 0;  // Liveness::lower_bound_bytes; with scratch, the largest sum with it
  int64_t output_bytes = 0;       // of the arena: graph outputs
  bool overflow = false;
  std::vector<MemoryPlan> bodies;  // by NestedId; those that nobody calls are empty. Of the outermost graph only

  int64_t offset_of(StorageId s) const { return s.is_none() ? kNoOffset : offsets[s.index]; }
  int64_t fragmentation_bytes() const { return arena_bytes - lower_bound_bytes; }
};

MemoryPlan plan_memory(const Liveness& liveness, const PlanOptions& options = {});

}  // namespace sg
