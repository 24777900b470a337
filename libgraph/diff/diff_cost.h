// What a change costs: numbers of both jobs side by side.
#pragma once

#include <string>
#include <vector>

#include "libgraph/story/stat.h"

namespace sg {

struct CostRow {
  std::string key;   // stable: "flops", "peak_bytes", "collective:all_gather:fsdp:bytes"
  std::string what;  // for people: "all_gather @fsdp"
  enum class Unit : uint8_t { count, flops, bytes, microseconds } unit = Unit::count;
  double before = 0, after = 0;
};

// Rows that differ: of a rank, or, if ranks run different programs, of all ranks together, with the memory of the one
// that needs most.
std::vector<CostRow> compare_costs(const Stats& a, const Stats& b);

// What a simulation says of a step: libgraph/sim, which the diff does not know.
struct StepTime {
  std::string machine;
  double critical_path_us = 0;  // the makespan
  double exposed_us = 0;        // of it: compute waits for collectives
};
std::vector<CostRow> compare_times(const StepTime& a, const StepTime& b);

std::string print_cost_number(double v, CostRow::Unit unit);

}  // namespace sg
