// Whether ranks that recompute collectives still pair them as they did. Internal to sg-remat.
//
// Copies stand where the backward needs them, and the backward may differ from rank to rank (agreement.h).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "libpasses/remat/remat_model.h"

namespace sg {

// What was decided for a program of the job.
struct RematPlaced {
  const RematModel* model;
  const RematOutcome* outcome;
};

struct RematParting {
  GroupId group;  // whose calls would come in different orders; none: the groups keep each other waiting
  std::string why;
};

// `placed`: by program. None: the job runs. Cost: the verifier's, types left out, where a collective is copied.
std::optional<RematParting> find_parting(const Job& job, std::span<const RematPlaced> placed, size_t threads);

}  // namespace sg
