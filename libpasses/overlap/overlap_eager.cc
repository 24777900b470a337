// An order to search from: collectives are launched as soon as their input is computed.
//
// A captured DistributedDataParallel step ends with all of its reductions. What stands between a gradient and its
// launch (the division by the number of ranks, casts, packing) is compute that nothing but the launch needs. A list
// scheduler never finds it urgent, because the path from there to the end of the step is short, so it would come last.
// Here it moves up with its launch.
#include <algorithm>
#include <numeric>

#include "libpasses/overlap/overlap_parts.h"

namespace sg::overlap_parts {
namespace {

constexpr uint32_t kInputsOnly = 0;  // otherwise: the place that it must stand behind, plus one

bool launches(const Step& step, uint32_t place) {
  const auto ops = step.costs.ops(step.precedence.node(place));
  return ops.size() == 1 && ops[0].kind == StepOp::Kind::launch;
}

bool only_computes(const Step& step, uint32_t place) {
  return std::ranges::all_of(step.costs.ops(step.precedence.node(place)),
                             [](const StepOp& op) { return op.kind == StepOp::Kind::compute && op.hold_count == 0; });
}

// By place: launches, and compute that is needed by them alone.
std::vector<bool> launches_and_feeders(const Step& step) {
  std::vector<bool> out(step.precedence.size());
  for (uint32_t i = static_cast<uint32_t>(out.size()); i-- > 0;) {
    const auto after = step.precedence.after(i);
    out[i] = launches(step, i) || (only_computes(step, i) && !after.empty() &&
                                   std::ranges::all_of(after, [&](uint32_t s) { return out[s]; }));
  }
  return out;
}

}  // namespace

Order launched_early(const Step& step) {
  const Precedence& precedence = step.precedence;
  const uint32_t n = static_cast<uint32_t>(precedence.size());
  const std::vector<bool> moves = launches_and_feeders(step);
  std::vector<uint32_t> behind(n, kInputsOnly), key(n);
  // Gathers of parameters need only inputs and stay: all of them at the beginning would hold all parameters at once. A
  // launch that must only follow another one does not follow it closely for that.
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t launched = 0;
    for (uint32_t b : precedence.before(i)) {
      uint32_t& latest = launches(step, b) ? launched : behind[i];
      latest = std::max(latest, moves[b] ? behind[b] : b + 1);
    }
    if (behind[i] == kInputsOnly && launches(step, i)) behind[i] = i + 1;
    behind[i] = std::max(behind[i], launched);
  }
  // A feeder goes where the first launch does that needs it.
  for (uint32_t i = n; i-- > 0;) {
    key[i] = i;
    if (!moves[i]) continue;
    if (launches(step, i)) {
      key[i] = behind[i] - 1;
    } else if (moves[i]) {
      for (uint32_t s : precedence.after(i)) key[i] = std::min(key[i], key[s]);
    }
  }
  Order out(n);
  std::iota(out.begin(), out.end(), 0);
  std::ranges::sort(out, {}, [&](uint32_t i) { return std::pair(key[i], i); });
  return out;
}

}  // namespace sg::overlap_parts
