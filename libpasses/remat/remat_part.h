// One program of a job: what sg-remat may recompute in it, and the decision. Internal to sg-remat.
#pragma once

#include <memory>
#include <optional>

#include "libpasses/remat/remat_model.h"

namespace sg {

// What a policy recomputes without a target.
struct RematRule {
  std::vector<uint8_t> recompute;  // by position
  std::vector<uint32_t> unshards;  // positions of RematTags::unshards
  bool eases = false;              // values are kept after all where that lowers the peak (remat_ease.h)
};

struct RematPart {
  std::unique_ptr<RematModel> model;
  std::vector<uint8_t> allowed, crossing;  // by position: RematSearch
  std::vector<RematRule> rules;            // with a target: what a search has to be at least as good as
  RematDecision decision;
  RematOutcome outcome;
  int64_t bound_bytes = 0, target_bytes = 0;
  std::optional<int64_t> before_bytes, after_bytes;  // planned, if known

  // By position: whether there was something to decide.
  std::vector<uint8_t> open() const {
    std::vector<uint8_t> out = allowed;
    for (size_t at = 0; at < crossing.size(); ++at) out[at] |= crossing[at];
    return out;
  }
};

// A peak that falls by less than a hundredth does not count as lower.
constexpr int64_t kWorthwhile = 100;

}  // namespace sg
