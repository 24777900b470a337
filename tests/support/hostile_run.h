// A job from a hostile hand, verified and run as sg-run does, within small limits: any outcome is right but a crash, a
// hang, or an error that is our own.
#pragma once

#include <cstdint>
#include <string>

#include "libgraph/job.h"

namespace sg::test {

enum class HostileOutcome : uint8_t { too_large, refused, failed, ran };  // failed: with an error of the run

struct HostileReport {
  HostileOutcome outcome;
  std::string message;     // of the first finding, or the error
  bool own_fault = false;  // ErrorKind::internal, or an error without a message
};

// Types that were left out are filled in. `use_arena` false: each tensor has memory of its own, whose end ASan sees.
HostileReport run_hostile(Job& job, uint64_t seed, bool use_arena);

}  // namespace sg::test
