// sg-overlap: reorders nodes so that token exchanges and FSDP traffic run while something else computes. Nothing is
// added or removed.
//
// Isolate   Exchanges (all_to_all, also in nested bodies) whose group family carries other traffic as well move to a
//           new family of the same axis and ranks, with the next ordinal and a priority one higher: collectives of one
//           communicator run one after the other. With `gathers`, parameter gathers move likewise. Declared in the
//           file; the new family has no alias, because no producer knows it. --isolate-only ends here.
// Model     the fastest order on a machine (libgraph/sim) of those that were tried, from the graph's own and from one
//           that launches as early as possible (overlap_eager.cc), with a planned peak within the limit: that of the
//           input graph, or --peak. If none is shorter (by a thousandth) and none
//           gets below a limit that the graph exceeds, the graph stays as it is. If no order gets below --peak, that
//           is a warning.
// Reference TorchTitan's phases for chunked modules (overlap_reference.cc), and its dense-region schedule of gathers
//           and reductions if requested (overlap_dense.cc). Its peak and time are reported; no memory limit is
//           enforced.
// Legal     each node stays after everything that libgraph/facts/order.h says it must follow, which is checked for the
//           whole order before it is kept. Collectives of one group and host syncs change places only because all ranks
//           of the job change them in the same way; programs that differ follow the launch order of the first. Where
//           they cannot, each keeps the order of its launches, and no wait moves above a launch. If the ranks do not
//           agree after all, nothing changes, and that is reported.
// Changed   besides the order: groups (isolate), `non_blocking` of copies of token counts (reference), and the names of
//           waits of exchanges.
// Results   bitwise equal.
// Cost      n log n per order; the total number of simulated nodes is fixed (overlap_model.cc), so large graphs get
//           fewer orders.
// Limits    an order is only as good as the model of the machine; nothing is reordered inside bodies, and a peak that
//           no order can meet is not met. Dense regions: functional gathers and reductions only.
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
