// StepClock: how long a program takes with its nodes in any order in which each comes after what it takes a result of.
// For those who try many orders: constant time an operation, and no record.
//
// Exact     for jobs of one program it says what `simulate` says (a property test holds it to that). Where programs
//           differ, other ranks are taken to come to a collective when this one does.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/sim/step_costs.h"
#include "libgraph/sim/streams.h"

namespace sg {

// Where host and streams are after the nodes played so far.
class StepClock {
 public:
  explicit StepClock(const StepCosts& costs)
      : costs_(costs), group_us_(costs.group_count()), end_us_(costs.ops().size()) {}

  void reset();
  void play(NodeId n);
  // The next kernel begins no earlier.
  double now_us() const { return std::max(streams_.compute_us, streams_.host_us); }
  double compute_us() const { return streams_.compute_us; }
  // When the last of what `n` waits for is over. REQUIRES: those have been played
  double held_until_us(NodeId n) const;
  double makespan_us() const { return std::max(now_us(), last_us_); }

 private:
  double held_until_us(const StepOp& op) const;
  void play(const StepOp& op, uint32_t index);

  const StepCosts& costs_;
  Streams streams_;
  double last_us_ = 0;
  std::vector<double> group_us_;
  std::vector<double> end_us_;  // by operation
};

}  // namespace sg
