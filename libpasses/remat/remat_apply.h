// Carries out what RematModel::place found: copies in their places, later users redirected, unused originals erased.
// Internal to sg-remat.
#pragma once

#include "libpasses/remat/remat_model.h"

namespace sg {

// `graph` is the model's graph, or a copy of it with the same ids.
void apply_remat(const RematModel& model, const RematOutcome& outcome, Graph* graph);

// Forward nodes that nodes behind the forward use.
size_t count_saved(const Graph& graph);

}  // namespace sg
