// How long one node computes on a machine: a roofline with what kernels are known to reach.
//
// Time      the longest of: products at the machine's peak for their dtype, all else at the vector peak, bytes at the
//           memory's bandwidth; but never less than one kernel takes. What moves nothing and computes nothing takes no
//           time.
// Tiles     A product fills the machine in whole waves of tiles: the best of three tile sizes counts. That is why half
//           the rows take more than half of the time.
// Costs     are those of CostModel: flops and bytes of one kernel a node. Fusion is not modelled.
#pragma once

#include "libgraph/facts/cost.h"
#include "libgraph/sim/machine.h"

namespace sg {

// Microseconds on the device. REQUIRES: `cost` is that of n under `values`
double compute_time_us(const Machine& machine, const Graph& graph, NodeId n, const NodeCost& cost,
                       const SizeValues& values);

// Microseconds that a product's flops take at the machine's peak for their dtype; 0 for all else.
double product_time_at_peak_us(const Machine& machine, const Graph& graph, NodeId n, const NodeCost& cost,
                               const SizeValues& values);

}  // namespace sg
