#include "libgraph/sim/step_clock.h"

#include <algorithm>

namespace sg {

void StepClock::reset() {
  streams_ = {};
  last_us_ = 0;
  std::fill(group_us_.begin(), group_us_.end(), 0);
  std::fill(end_us_.begin(), end_us_.end(), 0);
}

void StepClock::play(NodeId n) {
  uint32_t index = costs_.first_op(n);
  for (const StepOp& op : costs_.ops(n)) play(op, index++);
}

void StepClock::play(const StepOp& op, uint32_t index) {
  using Kind = StepOp::Kind;
  if (op.hold_count != 0) streams_.hold(held_until_us(op));
  double end = streams_.compute_us;
  switch (op.kind) {
    case Kind::wait: break;
    case Kind::launch:
      end = std::max(streams_.launch(costs_.launch_us()), group_us_[op.group]) + op.us;
      group_us_[op.group] = end;
      break;
    case Kind::sync: end = streams_.sync(op.us) + op.us; break;
    case Kind::copy_out:
    case Kind::copy_in:
      end = streams_.copy(op.kind == Kind::copy_out ? 0 : 1, costs_.launch_us(), op.us) + op.us;
      break;
    case Kind::compute: end = streams_.compute(costs_.launch_us(), op.us) + op.us; break;
  }
  end_us_[index] = end;
  last_us_ = std::max(last_us_, end);
}

double StepClock::held_until_us(const StepOp& op) const {
  double held = 0;
  for (uint32_t hold : costs_.holds(op)) held = std::max(held, end_us_[hold]);
  return held;
}

double StepClock::held_until_us(NodeId n) const {
  double held = 0;
  for (const StepOp& op : costs_.ops(n)) held = std::max(held, held_until_us(op));
  return held;
}

}  // namespace sg
