// Liveness: when each piece of memory of a graph is in use, in schedule order, and how much that is at once.
//
// The one analysis behind sg-stat's memory figures, the memory plan and the passes that work under a limit.
//
// Storage   as libgraph/alias.h says, with may-alias ops decided for the sizes given. Live from the node that makes it to
//           the last node that takes a value in it; what a collective reads, until its wait; what is a graph output, to
//           the end. What may share memory for all we know (opaque ops) is kept as long as any of it is used.
// Outside   Graph inputs (parameters, buffers, ...) and everything in their memory. Outputs are inside.
// Reuse     A pointwise result may take over the memory of an argument that dies at that node, when both have the same
//           device, shape, strides and element size, and no other value of that memory is an argument.
// Calls     While sg.call runs, its body needs what its own schedule needs, in place of the call's results.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/alias.h"

namespace sg {

struct LiveStorage {
  StorageId storage;
  ValueId owner;                 // first value in it
  NodeId def, last;              // first and last node that needs it
  uint32_t first_position = 0;   // schedule positions of those: 0 = first node
  uint32_t last_position = 0;
  int64_t bytes = 0;
  bool bytes_known = true;       // false: a size has no value; bytes is 0
  bool is_output = false;
  StorageId takes_over;          // the storage whose memory it may be put in; none = none
};

struct Liveness {
  std::vector<LiveStorage> storages;      // inside ones, in schedule order
  std::vector<int64_t> live_bytes;        // by position: while that node runs, after reuse
  std::vector<NodeId> schedule;           // by position
  int64_t lower_bound_bytes = 0;          // the largest of live_bytes
  uint32_t peak_position = 0;             // the first position where it is reached
  int64_t call_bytes_at_peak = 0;         // of it: what the body of a call needs beyond the call's results
  std::vector<uint32_t> live_at_peak;     // indices into storages, largest first; those taken over left out
  int64_t input_bytes = 0;                // graph inputs: outside
  size_t unknown_sizes = 0;               // storages inside whose size is not known
};

Liveness compute_liveness(const Program& program, const Graph& graph, const SizeValues& values);

}  // namespace sg
