// sg-overlap: token exchanges and FSDP traffic run while something else computes. Nodes get another order; nothing is
// added or taken away.
//
// Isolate   Exchanges (all_to_all, in nested bodies too) whose group family carries other traffic as well move to a new
//           family of the same axis and ranks, with the next ordinal and a priority one above: collectives of one
//           communicator run one after the other. With `gathers` gathers of parameters move likewise. Declared in the
//           file; the new family has no alias, as no producer knows it. --isolate-only ends here.
// Model     the order that takes the least time on a machine (libgraph/sim) of those that were tried, with a planned
//           peak within the limit: that of the graph as it is, or --peak. If none is shorter (by a thousandth) and none
//           comes under a limit that the graph is above, the graph stays as it is. That no order comes under --peak
//           is a warning.
// Reference TorchTitan's phases for chunked modules (overlap_reference.cc), and its dense-region schedule of gathers
//           and reductions when asked for (overlap_dense.cc). It is what it is: reported, and held against no limit.
// Legal     each node stays behind all that libgraph/order.h says it must follow, which is checked for the whole order
//           before it is kept. Collectives of one group and host syncs change places only because all ranks of the job
//           change them alike; programs that differ follow the order of launches that the first has chosen. If the
//           ranks do not agree after all, nothing changes, and that is said.
// Changed   besides the order: groups (isolate), `non_blocking` of copies of token counts (reference), and what waits
//           of exchanges are called.
// Results   bitwise equal.
// Cost      n log n an order; a fixed number of nodes is played in all (overlap_model.cc), so large graphs get fewer
//           orders.
// Limits    an order is as good as the model of the machine; nothing is ordered inside of bodies, and no peak is met
//           that an order alone cannot meet. Dense regions: functional gathers and reductions only.
// Tests     golden/overlap, passes/run_overlap.py, unit/overlap_test.cc, unit/order_test.cc.
#pragma once

#include <string>

#include "libgraph/expr/assume.h"
#include "libpasses/pass.h"

namespace sg {

extern const PassInfo overlap_pass;

struct IsolateOptions {
  bool gathers = false;
};

Result<Change> isolate(Job* job, const IsolateOptions& options, PassContext& context);

enum class OverlapStrategy : uint8_t { model, reference };

struct OverlapOptions {
  OverlapStrategy strategy = OverlapStrategy::model;
  std::string machine = "h100-8";
  int64_t peak_bytes = 0;   // 0 = that of the graph as it is
  Assumption assume;        // of sizes that only the data decides
  bool dense_fsdp = false;  // reference
  IsolateOptions isolate;
};

Result<Change> overlap(Job* job, const OverlapOptions& options, PassContext& context);

}  // namespace sg
