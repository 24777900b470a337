// StepCosts: what the nodes of one program start, how long each of it takes, and what it waits for. Worked out once, as
// none of it depends on the order of the main graph's nodes: `simulate` plays it as the graph has it (rank.h),
// StepClock in any order.
//
// Free      Views, sizes and asserts start nothing: what is under way behind what they take is so behind their results.
// Waits     are for what is under way behind their first argument; others they only keep alive.
// Calls     A body (sg.call) is the operations that it runs, in its own order. It knows nothing of its caller's
//           launches: what a call takes is complete before the body begins, as it is in sg-run (GraphRun::run_body) and
//           in the plan of memory.
// Others    wait for what is under way behind what they take. In a valid job that is nothing.
// Cost      linear in the nodes that run: a body counts as often as it is called.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libgraph/sim/simulate.h"

namespace sg {

// One thing that the host starts for a node.
struct StepOp {
  enum class Kind : uint8_t { wait, launch, sync, copy_out, copy_in, compute };
  Kind kind = Kind::wait;
  uint32_t group = 0;                  // launch: the communicator; undeclared ones share the number behind the last
  uint32_t holds = 0, hold_count = 0;  // operations whose end it waits for: StepCosts::holds
  double us = 0;                       // on its stream; of a sync, on the host
  bool operator==(const StepOp&) const = default;
};

struct StepOrigin {
  const Graph* graph = nullptr;
  NodeId node;
};

class StepCosts {
 public:
  StepCosts(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options);

  // Those of a node of the main graph; none for an id that is not alive.
  std::span<const StepOp> ops(NodeId n) const { return ops().subspan(first_[n.index], count_[n.index]); }
  uint32_t first_op(NodeId n) const { return first_[n.index]; }
  // All, as the graph's own order has them.
  std::span<const StepOp> ops() const { return ops_; }
  std::span<const uint32_t> holds(const StepOp& op) const {
    return std::span<const uint32_t>(holds_).subspan(op.holds, op.hold_count);
  }
  const StepOrigin& origin(uint32_t op) const { return origins_[op]; }
  size_t group_count() const { return groups_; }
  double launch_us() const { return launch_us_; }
  double flops() const { return flops_; }
  double at_peak_us() const { return at_peak_us_; }  // products at the machine's peak, those that are recomputed once
  size_t unknown() const { return unknown_; }        // nodes that a size or a rule is missing for

  // Whether the same operations run for the same nodes, by id.
  bool same_times(const StepCosts& other) const {
    return ops_ == other.ops_ && holds_ == other.holds_ && first_ == other.first_ && count_ == other.count_ &&
           groups_ == other.groups_ && launch_us_ == other.launch_us_;
  }

 private:
  friend class StepCostsBuilder;
  std::vector<StepOp> ops_;
  std::vector<StepOrigin> origins_;      // by operation
  std::vector<uint32_t> holds_;          // operations
  std::vector<uint32_t> first_, count_;  // by node
  size_t groups_ = 0, unknown_ = 0;
  double launch_us_ = 0, flops_ = 0, at_peak_us_ = 0;
};

}  // namespace sg
