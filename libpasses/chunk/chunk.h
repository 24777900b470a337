// sg-chunk: splits the work of a module into N parts along its rows, so that one part's exchange can overlap with
// another's compute.
//
// Regions   every module that `modules` matches, forward and backward; copies of the nodes stand where the originals
//           stood.
// Proof     each node is chunked by an axis rule (axis_rules.h) that says what its results then are. No rule: refused,
//           with node and rule; with --best-effort that region stays whole, and is reported.
// Shared    nodes that do not depend on the rows: gathered and cast parameters.
// Sums      gradients of parameters: `early` adds the chunks before their collective, after casts to wider types;
//           `eager` adds them where autograd does for a module that is called once per chunk, which multiplies the
//           collectives by the number of chunks.
// Ranks     may have modules of their own, as stages of a pipeline do. A collective in chunks must be so, and be cut
//           alike, on all ranks of its group; else the region is refused.
// Results   rows are those of the module called once per chunk, concatenated; sums are reassociated.
// Limits    what no axis rule proves: ops without a row in axis_rules.cc, statistics over the rows, dispatch positions
//           computed in another form than TorchTitan's (docs/design/010-chunk.md lists the remaining cases).
// Tests     golden/chunk, passes/run_chunks.py and run_chunk_properties.py, passes/check_axis_rules.cc (each rule made
//           wrong on purpose), capture/run_chunk_tests.py, unit/axis_rules_test.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libpasses/pass.h"

namespace sg {

extern const PassInfo chunk_pass;

class AxisCall;

// For tests: called after each axis rule, and may falsify its result (tests/passes/check_axis_rules.cc).
using AxisTamper = std::function<void(AxisCall&)>;

enum class ChunkAlong : uint8_t { batch, sequence, tokens };

struct ChunkOptions {
  std::string modules;  // a module pattern
  int64_t chunks = 2;
  int64_t least_rows = 1;  // in each chunk
  ChunkAlong along = ChunkAlong::batch;
  bool early_sums = true;       // gradients of parameters are summed before their collectives, not after
  bool only_exchanges = false;  // regions without an all-to-all stay whole
  AxisTamper tamper;
};

Result<Change> chunk(Job* job, const ChunkOptions& options, PassContext& context);

}  // namespace sg
