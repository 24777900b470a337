// StepCosts and StepClock: what `simulate` does with one program, cut into nodes: for those who try many orders of
// them.
//
// Costs     of the nodes of one program's main graph, worked out once: they do not depend on the order. A body
//           (sg.call) is the operations that it runs, in its own order.
// Clock     plays nodes in any order in which each comes after what it takes a result of, in constant time an
//           operation.
// Exact     for jobs of one program the clock says what `simulate` says (a property test holds it to that). Where
//           programs differ, other ranks are taken to come to a collective when this one does.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "libgraph/sim/simulate.h"

namespace sg {

// One thing that the host starts for a node.
struct StepOp {
  enum class Kind : uint8_t { nothing, wait, launch, sync, copy_out, copy_in, compute };
  Kind kind = Kind::nothing;
  uint32_t group = 0;                  // launch: the communicator; undeclared ones share the number behind the last
  uint32_t holds = 0, hold_count = 0;  // operations whose end it waits for: StepCosts::holds
  double us = 0;                       // on its stream; of a sync, on the host
};

class StepCosts {
 public:
  StepCosts(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options);

  // The operations of a node; none for an id that is not alive.
  std::span<const StepOp> ops(NodeId n) const {
    return std::span<const StepOp>(ops_).subspan(first_[n.index], count_[n.index]);
  }
  uint32_t first_op(NodeId n) const { return first_[n.index]; }
  size_t op_count() const { return ops_.size(); }
  std::span<const uint32_t> holds(const StepOp& op) const {
    return std::span<const uint32_t>(holds_).subspan(op.holds, op.hold_count);
  }
  size_t group_count() const { return groups_; }
  double launch_us() const { return launch_us_; }
  size_t unknown() const { return unknown_; }  // operations that a size or a rule is missing for

 private:
  friend class StepCostsBuilder;
  std::vector<StepOp> ops_;
  std::vector<uint32_t> holds_;          // operations
  std::vector<uint32_t> first_, count_;  // by node
  size_t groups_ = 0, unknown_ = 0;
  double launch_us_ = 0;
};

// Where host and streams are after the nodes played so far.
class StepClock {
 public:
  explicit StepClock(const StepCosts& costs)
      : costs_(costs), group_us_(costs.group_count()), end_us_(costs.op_count()) {}

  void reset();
  void play(NodeId n);
  // The next kernel begins no earlier.
  double now_us() const { return compute_us_ > host_us_ ? compute_us_ : host_us_; }
  double host_us() const { return host_us_; }
  double compute_us() const { return compute_us_; }
  // The end of what `n` has started; 0 before it is played.
  double end_us(NodeId n) const;
  // When the last of what `n` waits for is over. REQUIRES: those have been played
  double held_until_us(NodeId n) const;
  double makespan_us() const;

 private:
  void play(const StepOp& op, uint32_t index);

  const StepCosts& costs_;
  double host_us_ = 0, compute_us_ = 0, last_us_ = 0;
  std::array<double, 2> copy_us_{};  // out, in
  std::vector<double> group_us_;
  std::vector<double> end_us_;  // by operation
};

}  // namespace sg
