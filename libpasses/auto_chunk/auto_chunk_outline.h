// Applies an AutoPlan: the body becomes a nested graph that is called once for each chunk (sg.call). Internal to
// sg-chunk --auto.
//
// Bodies    one for each size of a chunk: one, or two if the rows do not divide evenly
// Slices    inputs are sliced as views; each call writes its rows of an output into a slice of one whole tensor
// Sums      are accumulated in place, from call to call, into tensors of zeros: in f32, unless the values' own type is
//           requested. If only a cast to f32 follows, the sum replaces the cast
// Metadata  bodies have role "body" and the original's name; calls "call" and an index
#pragma once

#include "libpasses/auto_chunk/auto_chunk_plan.h"

namespace sg {

// How the rows are cut.
struct AutoCuts {
  std::vector<Expr> sizes;  // one per chunk
  bool symbolic = false;
};

// Like torch.chunk: equal sizes except for the last, which may be smaller; fewer chunks than requested if that
// suffices. If `rows` is a symbol: rows // chunks each, and the rest in the last.
AutoCuts cut_into(ExprPool* exprs, Expr rows, int64_t chunks);
// `chunks` chunks of `rows_per_chunk` rows each; the last has the rest. REQUIRES: the rest is not empty
AutoCuts cut_by(ExprPool* exprs, Expr rows, int64_t rows_per_chunk, int64_t chunks);

struct AutoCounts {
  size_t body_nodes = 0, inputs = 0, sums = 0, joined = 0, bodies = 0;
};

Result<AutoCounts> outline_auto_chunk(Program* program, const AutoPlan& plan, const AutoCuts& cuts, bool sums_in_f32);

}  // namespace sg
