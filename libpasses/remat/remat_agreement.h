// Whether ranks that recompute collectives still pair them as before. Internal to sg-remat.
//
// Copies stand where the backward needs them, and the backward may differ from rank to rank (agreement.h).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "libpasses/remat/remat_model.h"

namespace sg {

// The decision for one program of the job.
struct RematPlaced {
  const RematModel* model;
  const RematOutcome* outcome;
};

struct RematParting {
  GroupId group;  // its calls would come in different orders; none: groups would wait for each other
  std::string why;
};

// `placed`: by program. None: the ranks agree. Cost: that of the verifier without its type check, if any collective is
// recomputed.
std::optional<RematParting> find_parting(const Job& job, std::span<const RematPlaced> placed, size_t threads);

}  // namespace sg
