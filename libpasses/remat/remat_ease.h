// sg-remat without a target, for the policies full and default: recomputes everything they name except values that
// would raise the peak (RematChooser::ease), and parameters that only the head reads. Internal to sg-remat.
#pragma once

#include <span>

#include "libpasses/remat/remat_part.h"

namespace sg {

struct RematEase {
  std::span<const RematPart> decided;  // programs decided before this one
  bool alike = false;                  // the first of them decides for all
  size_t threads = 1;
};

// What a policy alone decides: the rule, except what would raise the peak.
RematDecision decision_by(const RematRule& rule, RematModel* model, size_t threads);

// Decides about `part`. `unshards` gather the parameters of the head (RematTags); if they are regathered after all,
// they are tagged so in `graph`.
void ease(const RematEase& with, const std::vector<NodeId>& unshards, Graph* graph, RematPart* part);

}  // namespace sg
