// Transfers one rank's decision to another rank's program, so that both recompute the same collectives. Internal to
// sg-remat.
//
// Programs of different ranks differ in a few nodes, e.g. where a smaller shard is padded. The k-th call of an op in a
// module corresponds to the k-th in the other program. A wrong pair only costs memory, because any choice among
// `allowed` gives the same bits, and the outcome is checked for agreement between ranks.
#pragma once

#include "libpasses/remat/remat_model.h"

namespace sg {

// Whether the programs have equal nodes. One decision then serves both; a separate search could decide differently.
bool has_equal_nodes(const RematModel& a, const RematModel& b);
// Whether these nodes also take the same results. If not (each rank takes its own part of a split), memory plans differ
// slightly. REQUIRES: has_equal_nodes
bool has_equal_operands(const RematModel& a, const RematModel& b);

// Nodes that exist only in `model` follow `allowed`.
RematDecision decision_alike(const RematModel& other, const RematDecision& decision, const RematModel& model,
                             const std::vector<uint8_t>& allowed);

}  // namespace sg
