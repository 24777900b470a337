// Measures what ranks of this machine do per second: small steps with one kind of work each, run as sg-run runs them.
//
// All ranks work at the same time, so that shared resources (memory, cores) are shared. A probe is one step, run once
// to warm up and then `repeats` times; all repeats are reported. Inputs are made up. Takes a few seconds and a few
// hundred megabytes in total.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

struct RateOptions {
  uint32_t ranks = 1;
  int threads = 1;       // per rank
  uint32_t repeats = 9;  // at least 1
};

struct ProbeTimes {
  std::string name;             // "matmul_f32", ...: measure_rates.cc lists them
  double flops = 0, bytes = 0;  // per rank and step, as counted by CostModel
  double nodes = 0;             // those that compute or communicate
  double payload_bytes = 0;     // of one collective: Communication::payload_bytes
  std::vector<double> seconds;  // of the slowest rank, by repeat
};

// Collectives are omitted if there is only one rank. Errors: not enough memory.
Result<std::vector<ProbeTimes>> measure_rates(const RateOptions& options);

}  // namespace sg
