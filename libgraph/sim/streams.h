// Streams: when each thing that a rank starts may begin. All that simulations know of time; who plays a step (rank.h,
// step_clock.h) adds what it counts.
//
// Host      starts one thing after the other, each `launch_us` behind the one before.
// Compute   one stream, in the order of launches.
// Beside it collectives and copies begin behind all compute that was launched before them, as in PyTorch, and behind
//           their own kind: a stream a communicator (kept by the player, as its ranks share it), one each way to the
//           host.
// Waits     hold compute, and so all that is launched later.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace sg {

struct Streams {
  double host_us = 0, compute_us = 0;  // free from here on
  std::array<double, 2> copy_us{};     // out, in

  void hold(double until_us) { compute_us = std::max(compute_us, until_us); }

  // From when on a collective may begin, as far as this rank goes.
  double launch(double launch_us) {
    host_us += launch_us;
    return std::max(host_us, compute_us);
  }

  // These return when it begins.
  double compute(double launch_us, double us) {
    host_us += launch_us;
    const double begin_us = std::max(compute_us, host_us);
    compute_us = begin_us + us;
    return begin_us;
  }
  double copy(size_t way, double launch_us, double us) {
    host_us += launch_us;
    const double begin_us = std::max({host_us, compute_us, copy_us[way]});
    copy_us[way] = begin_us + us;
    return begin_us;
  }
  double sync(double us) {
    const double begin_us = std::max(host_us, compute_us);
    host_us = begin_us + us;
    return begin_us;
  }
};

}  // namespace sg
