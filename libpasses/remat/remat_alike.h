// One rank's decision for another rank's program, so that both recompute the same collectives. Internal to sg-remat.
//
// Programs of ranks differ in a few nodes: a shard that is smaller is padded. The k-th call of an op in a module is
// taken for the k-th of the other program; a wrong pair costs memory and no more, as any choice of what is `allowed`
// gives the same bits, and whether ranks agree is asked of what comes of it.
#pragma once

#include "libpasses/remat/remat_model.h"

namespace sg {

// Whether the programs do the same: then one decision is for both, as a search would find another by its numbers.
bool has_equal_nodes(const RematModel& a, const RematModel& b);

// What only `model` has follows `allowed`.
RematDecision decision_alike(const RematModel& other, const RematDecision& decision, const RematModel& model,
                             const std::vector<uint8_t>& allowed);

}  // namespace sg
