// PlanReport: what the memory of a run will be and who holds it, before anything runs (`sg-run --plan`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libgraph/base/json.h"
#include "libgraph/expr/symbols.h"
#include "libgraph/job.h"
#include "libgraph/plan/allocation.h"
#include "libgraph/plan/plan.h"

namespace sg {

struct PlanOwner {
  std::string name, op;       // first value in the memory, and the op that makes it
  std::string phase, module;  // module "" = outside any
  std::string source;         // "moe.py:212"; "" = unknown
  std::string until;          // the last node that needs it; "" for an output
  int64_t bytes = 0;
};

struct PhasePeak {
  std::string phase, node;  // where it is reached first
  int64_t bytes = 0;        // live at once, as in lower_bound_bytes
};

// Memory whose size only the data decides.
struct PooledOwner {
  PlanOwner owner;  // bytes: at the most, 0 where nothing bounds it
  bool is_bounded = false;
};

struct PlanReport {
  std::string title;
  std::vector<uint32_t> ranks;  // empty = all
  uint32_t world = 1;
  int64_t inputs_bytes = 0, parameters_bytes = 0;
  int64_t peak_bytes = 0;  // the arena, outputs included
  int64_t lower_bound_bytes = 0;
  int64_t output_bytes = 0;      // of peak_bytes
  int64_t host_bytes = 0;        // the host's arena: what transfers have brought there
  int64_t host_bound_bytes = 0;  // the most of it that is live at once
  std::string peak_node, peak_phase, peak_module, peak_source;
  int64_t call_bytes = 0;               // at the peak: inside the body of a call
  std::vector<PlanOwner> live_at_peak;  // largest first; with call_bytes they add up to lower_bound_bytes
  std::vector<PhasePeak> phases;        // those that have nodes
  std::vector<PooledOwner> pooled;      // largest bound first, then what nothing bounds
  int64_t pool_bound_bytes = 0;         // the most that bounded ones hold at once
  size_t pool_unbounded = 0;
  std::optional<AllocationReport> allocation;  // if it was asked for

  int64_t fragmentation_bytes() const { return peak_bytes - lower_bound_bytes; }
};

// `values` are the sizes that are known before the run. `facts` (RangeInference::facts of the program) bound the rest;
// null = nothing is bounded.
// `allocator`: also how memory would be handed out.
PlanReport report_plan(const Job& job, const Program& program, const SizeValues& values, const Facts* facts = nullptr,
                       std::optional<AllocatorKind> allocator = {});

// The same of a plan that is there already.
PlanReport report_plan(const Job& job, const Program& program, const SizeValues& values, const Facts* facts,
                       const Liveness& liveness, const MemoryPlan& plan);

// Peak, bound, fragmentation, phases, pool, and the `rows` largest of the live set; the rest is summed up.
std::string print_plan(const PlanReport& report, size_t rows = 20);

// One object: {"ranks","peak_bytes","lower_bound_bytes","fragmentation_bytes",...,"live_at_peak":[...]}.
// docs/memory-plan.md
void write_plan(const PlanReport& report, JsonWriter* json);

}  // namespace sg
