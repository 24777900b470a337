// Random collectives over random groups, with the answers by naive definition: the same script for every communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "librun/comm/comm.h"

namespace sg::test {

using Bytes = std::vector<std::byte>;

struct ScriptStep {
  CollectiveCall call;  // without tensors and split sizes
  DType dtype = DType::f32;
  std::vector<uint32_t> ranks;             // of the part, by group rank
  std::vector<Bytes> inputs, outputs;      // by group rank; outputs as they have to be
  std::vector<std::vector<int64_t>> send;  // by group rank; all_to_all with uneven slots
  bool in_place = false;                   // all_reduce: the input is the output
  std::string label;
};

struct Script {
  std::unique_ptr<Job> job;
  std::vector<ScriptStep> steps;
};

// At most 8 ranks; `large` = some tensors of more than a megabyte.
Script random_script(uint64_t seed, uint32_t world, size_t steps, bool large);

// Plays the part of comm's rank: launches in the order of each group, waits in an order of its own. Empty = all answers
// are right to the bit (any NaN for a NaN); else what is not.
std::string play(const Script& script, Communicator& comm, uint64_t order_seed);

// Calls fn(comm) for each rank in a thread of its own; the communicators end with their threads.
void run_ranks(std::vector<std::unique_ptr<Communicator>> comms, const std::function<void(Communicator&)>& fn);

// A job of `world` ranks with one family of groups, "all", of all of them.
std::unique_ptr<Job> job_of(uint32_t world);

}  // namespace sg::test
