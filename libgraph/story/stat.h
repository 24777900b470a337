// Stats: what sg-stat says about a job. Counts, costs, communication, memory; sizes under an assumption.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/base/json.h"
#include "libgraph/job.h"
#include "libgraph/plan/allocation.h"

namespace sg {

struct StatOptions {
  // The value to assume for a symbol. Default: its hint, else the middle of its range, else none.
  std::function<std::optional<int64_t>(const Program&, StrId)> sizes;
  size_t module_depth = 3;                 // components of a module name that by_module keeps; 0 = all
  bool memory = true;                      // liveness and plan: about half of the time
  std::optional<AllocatorKind> allocator;  // and how memory would be handed out, with its course over the step
};

struct CostSum {
  size_t nodes = 0;
  double flops = 0;
  double bytes = 0;  // read and written by the device
};

struct CollectiveSum {
  std::string kind, group;  // "all_gather"; "fsdp", "ep:1", or "?" for a group that the file does not declare
  size_t count = 0;
  double bytes = 0;  // payload, and wire: Communication in cost.h
  double wire_bytes = 0;
};

struct LiveOwner {
  std::string name, op, module;  // the first value in the storage, and the node that made it
  std::string phase;
  int64_t bytes = 0;
};

struct MemoryStats {
  int64_t inputs_bytes = 0;      // all graph inputs
  int64_t parameters_bytes = 0;  // of them: parameters
  int64_t peak_bytes = 0;        // the planned arena: all that a run needs beyond the inputs, outputs included
  int64_t lower_bound_bytes = 0;
  int64_t host_bytes = 0;               // planned arena of what transfers have brought to the host
  std::string peak_node;                // where lower_bound_bytes is reached first
  int64_t call_bytes = 0;               // of it: inside the body of a call
  std::vector<LiveOwner> live_at_peak;  // largest first; their bytes and call_bytes add up to lower_bound_bytes
  std::optional<AllocationReport> allocation;
  size_t unknown_sizes = 0;  // storages that are left out, as a size has no value
};

struct NestedStats {
  std::string name;
  size_t nodes = 0, inputs = 0, outputs = 0;
  std::map<std::string, size_t> ops;
};

// One program. Nested graphs are counted apart; only cost goes into the node that calls a body, and communication into
// `collectives`, as often as the body runs.
struct ProgramStats {
  std::vector<uint32_t> ranks;  // empty = all
  size_t nodes = 0, inputs = 0, outputs = 0;
  std::map<std::string, size_t> ops;
  size_t parameters = 0;  // inputs of that kind
  double parameter_elements = 0;
  CostSum total;
  std::map<std::string, CostSum> by_phase, by_module, by_op;  // module "" = outside any
  std::vector<CollectiveSum> collectives;                     // by kind, then group
  size_t symbols = 0, data_symbols = 0;
  std::vector<std::pair<std::string, int64_t>> assumed;  // symbols that have a number here, as StatOptions::sizes says
  std::vector<std::string> unbounded;                    // used symbols that nothing bounds from above: range_infer.h
  size_t random_ops = 0;
  std::map<std::string, size_t> opaque_ops;
  size_t incomplete = 0;  // nodes whose cost lacks a size or a rule
  MemoryStats memory;
  std::vector<NestedStats> nested;
};

struct Stats {
  std::string title;
  uint32_t world = 1;
  std::vector<ProgramStats> programs;
};

Stats collect_stats(const Job& job, const StatOptions& options = {});

// The `--json` form: {"schema":"sg-stat","version":1, ...}. The numbers at the top are those of the first program; a
// job of several programs also has "ranks": one object per program with its "ranks" and the same keys.
std::string stats_json(const Stats& stats, JsonWriter::Style style = JsonWriter::Style::compact);

}  // namespace sg
