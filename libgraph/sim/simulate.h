// Simulation: when each node of a step runs on a machine, and what that time is spent on.
//
// Rank      A program stands for its ranks: all of them do the same at the same time, so ten thousand ranks cost what
//           one does. A collective begins when the last program of its group has come to it.
// Host      One thread that launches nodes in schedule order; a host sync waits for the device, and whatever comes
//           after is launched later.
// Streams   One for compute, one a communicator, one each way to the host. A stream runs in the order of launches. A
//           collective or copy begins behind all compute that was launched before it, as in PyTorch; its wait holds
//           compute.
// Bodies    of sg.call run inline, behind all that the call takes (step_costs.h).
// Time      The makespan is compute + what compute waited for: collectives by kind ("exposed"), copies, the host's
//           launches and syncs, and the tail after the last kernel. The parts add up to the makespan.
// Exact     for what it models, deterministic, linear in the nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "libgraph/expr/assume.h"
#include "libgraph/job.h"
#include "libgraph/sim/machine.h"

namespace sg {

enum class Resource : uint8_t { compute, communicator, copy_out, copy_in, host };

struct SimEvent {
  const Graph* graph = nullptr;
  NodeId node;
  Resource resource = Resource::compute;
  GroupId group;  // of a communicator
  double begin_us = 0, end_us = 0;
  uint32_t cause = kNoCause;  // the event whose end let this one begin; of the same program
  static constexpr uint32_t kNoCause = 0xFFFFFFFFu;
};

struct SimOptions {
  Machine machine;
  uint32_t ranks = 0;  // of the world, for groups that span it; 0 = the job's own
  bool events = true;  // keep them: for traces and the critical path
};

// One program's step.
struct ProgramTimeline {
  double makespan_us = 0;
  double compute_us = 0;                           // the compute stream is busy
  std::map<std::string, double> exposed_us;        // compute waits for a collective, by kind
  double copy_us = 0, host_us = 0;                 // compute waits for copies; for launches and syncs
  double tail_us = 0;                              // after the last kernel
  std::map<std::string, double> communication_us;  // by kind: collectives under way
  double flops = 0;                                // of contractions and all else
  double at_peak_us = 0;                           // products at the machine's peak, without what is recomputed
  size_t unknown = 0;                              // nodes that a size or a rule is missing for: they count as nothing
  std::vector<SimEvent> events;                    // in the order of launches
  double exposed_total_us() const;
  // Model flops utilization: the share of the step that its products need at the machine's peak.
  double mfu() const { return makespan_us > 0 ? at_peak_us / makespan_us : 0; }
};

struct Simulation {
  std::vector<ProgramTimeline> programs;  // as in the job
  size_t slowest = 0;
  uint32_t world = 1;  // ranks: the job's, or as many as were asked for, if any group spans them
  const ProgramTimeline& worst() const { return programs[slowest]; }
};

// `values` by program. An Error (cannot_apply) when ranks wait for each other in a circle, which no valid job has.
Result<Simulation> simulate(const Job& job, const std::vector<SymbolValues>& values, const SimOptions& options);

// Whether a group spans the world: only then does another number of ranks (SimOptions) make a difference.
bool has_group_of_all(const Job& job);

// The chain of events that the makespan hangs on, first to last.
std::vector<uint32_t> critical_path(const ProgramTimeline& timeline);

}  // namespace sg
