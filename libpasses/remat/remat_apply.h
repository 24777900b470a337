// Applies the result of RematModel::place: inserts copies, redirects later users, erases unused originals. Internal to
// sg-remat.
#pragma once

#include "libpasses/remat/remat_model.h"

namespace sg {

// `graph` is the model's graph, or a copy of it with the same ids.
void apply_remat(const RematModel& model, const RematOutcome& outcome, Graph* graph);

// Number of forward nodes that nodes after the forward use.
size_t count_saved(const Graph& graph);

}  // namespace sg
