// What ranks of this machine do in a second: small steps of one kind of work each, run as sg-run runs them.
//
// All ranks work at the same time, so that what they share (memory, cores) is shared. A probe is one step, run once to
// warm up and then `repeats` times; all repeats are reported. Inputs are made up. Takes some seconds and some hundred
// megabytes in all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libgraph/result.h"

namespace sg {

struct RateOptions {
  uint32_t ranks = 1;
  int threads = 1;       // of each rank
  uint32_t repeats = 9;  // at least 1
};

struct ProbeTimes {
  std::string name;             // "matmul_f32", ...: measure_rates.cc lists them
  double flops = 0, bytes = 0;  // of a rank's step, as CostModel counts them
  double nodes = 0;             // that compute or communicate
  double payload_bytes = 0;     // of one collective: Communication::payload_bytes
  std::vector<double> seconds;  // of the slowest rank, by repeat
};

// Collectives are left out where there is one rank. Errors: there is not enough memory.
Result<std::vector<ProbeTimes>> measure_rates(const RateOptions& options);

}  // namespace sg
