// Allocation: the memory of a step by a way of handing it out, and its course over the step.
//
// exact         as liveness.h counts it: what is live at each node, after reuse in place
// cuda-caching  as PyTorch would have it, running the graph node by node: each result gets a block
//               (caching_allocator.h) while the node's arguments are still there, and gives it back behind its last
//               use. Nothing is reused in place, views cost nothing. What collectives read and write stays until their
//               wait, as liveness.h says; in the body of a call too.
// Both leave out graph inputs, what lies on the host, and what has no known size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/json.h"
#include "libgraph/plan/liveness.h"

namespace sg {

enum class AllocatorKind : uint8_t { exact, cuda_caching };
std::optional<AllocatorKind> allocator_named(std::string_view name);  // "exact", "cuda-caching"

// Neighbours in the schedule of one phase.
struct PhaseSpan {
  std::string phase, first, last, peak_node;  // labels of nodes
  size_t nodes = 0;
  int64_t begin_bytes = 0, peak_bytes = 0,
          end_bytes = 0;  // before the first node, the most while one runs, behind the last
};

struct AllocationReport {
  AllocatorKind kind = AllocatorKind::exact;
  int64_t allocated_bytes = 0;  // the most that is handed out at once
  int64_t reserved_bytes = 0;   // of the device; exact: the same
  size_t segments = 0;          // cuda-caching
  std::vector<PhaseSpan> timeline;
};

AllocationReport allocate_step(const Program& program, const Liveness& liveness, AllocatorKind kind);

// A line about the peak, and one a span.
std::string print_allocation(const AllocationReport& report);
// {"name","allocated_bytes","reserved_bytes","segments","timeline":[{"phase","first","last","nodes","begin_bytes",
//  "peak_bytes","peak_node","end_bytes"}]}
void write_allocation(const AllocationReport& report, JsonWriter* json);

}  // namespace sg
