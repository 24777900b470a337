// Liveness: when each piece of memory of a graph is in use, in schedule order, and how much is live at once.
//
// The one analysis behind sg-stat's memory figures, the memory plan and the passes that work under a limit.
//
// Storage   as libgraph/facts/alias.h says, with may-alias ops decided for the sizes given. Live from the node that
//           makes it to the last node that uses a value in it, other than for its size; graph outputs, to the end. Its
//           length covers the furthest element of any value in it. Values that may share memory (opaque ops) are kept
//           as long as any of them is used.
// In flight What a collective or a transfer reads and writes stays until the last wait for a result of it, or to the
//           end if a result is not waited for in this graph. A body completes what it launched before it returns.
// Host      Values that a transfer (transfer.h) has copied to the host are in host memory, which is counted
//           separately; in the body of a call they count as device memory.
// Outside   Graph inputs (parameters, buffers, ...) and everything in their memory. Outputs are inside.
// Reuse     A pointwise or row-local result may take over the memory of an argument that dies at that node, or a part
//           of it: in_place.h.
// Calls     While sg.call runs, its body needs what its own schedule needs; the call's results lie where the body's
//           outputs were, so nothing is copied on return.
//
// So at each position the storages in use there do not overlap, except where takes_over and calls say so; in
// particular a result never lies in an argument of its own node that it does not take over.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "libgraph/facts/alias.h"

namespace sg {

struct LiveStorage {
  StorageId storage;
  ValueId owner;                // first value in it
  NodeId def, last;             // first and last node that needs it
  uint32_t first_position = 0;  // schedule positions of those: 0 = first node
  uint32_t last_position = 0;
  int64_t bytes = 0;
  bool bytes_known = true;  // false: a size has no value; bytes is 0
  bool is_output = false;
  bool is_host = false;       // in the host's memory, apart from all else
  StorageId takes_over;       // the storage whose memory it may be put in; none = none
  int64_t takes_over_at = 0;  // bytes into that storage where it begins
};

// A node that runs a body in a frame of its own memory.
struct CallSite {
  struct Result {
    StorageId storage, in_body;  // of this graph, and of the body: one piece of memory
  };
  NodeId node;
  uint32_t position = 0;
  NestedId body;
  std::vector<Result> results;
};

struct Liveness {
  std::vector<LiveStorage> storages;   // inside ones, in schedule order
  std::vector<uint32_t> index_of;      // by StorageId: into storages; kOutside = an input's memory
  std::vector<StorageId> storage_of;   // by ValueId; none = no memory (scalars)
  std::vector<int64_t> live_bytes;     // by position: while that node runs, after reuse; the host's left out
  std::vector<NodeId> schedule;        // by position
  int64_t lower_bound_bytes = 0;       // the largest of live_bytes
  uint32_t peak_position = 0;          // the first position where it is reached
  int64_t call_bytes_at_peak = 0;      // of it: what the body of a call needs beyond the call's results
  std::vector<uint32_t> live_at_peak;  // indices into storages, largest first; what lies in another one is left out
  int64_t host_bound_bytes = 0;        // the most that is live in the host's memory
  int64_t input_bytes = 0;             // graph inputs: outside
  size_t unknown_sizes = 0;            // storages inside whose size is not known
  std::vector<CallSite> calls;         // in schedule order
  std::vector<std::shared_ptr<const Liveness>> bodies;  // by NestedId; null = not called. Of the outermost graph only

  static constexpr uint32_t kOutside = 0xFFFFFFFFu;
  const LiveStorage* find(StorageId s) const {  // null = outside, or no storage
    return s.is_none() || index_of[s.index] == kOutside ? nullptr : &storages[index_of[s.index]];
  }
};

Liveness compute_liveness(const Program& program, const Graph& graph, const SizeValues& values);

}  // namespace sg
