// Carries out an AutoPlan: the body becomes a nested graph that is called once for each chunk (sg.call). Internal to
// sg-chunk --auto.
//
// Bodies    one for each size of a chunk: one, or two where the rows do not divide
// Slices    of what goes in are views; what comes out in rows is written by each call into its slice of one whole
//           tensor
// Sums      are added in place to tensors of zeros, which go from call to call: in f32, unless the values' own type is
//           asked for. Where nothing but a cast to that type follows, the sum is handed on as it is
// Metadata  bodies have role "body" and the original's name; calls "call" and an index
#pragma once

#include "libpasses/auto_chunk/auto_chunk_plan.h"

namespace sg {

// How the rows are cut.
struct AutoCuts {
  std::vector<Expr> sizes;  // one a chunk
  bool symbolic = false;
};

// As torch.chunk does: all of one size but the last, which may be smaller; fewer chunks than asked for where that is
// enough. Rows that are a symbol: all of rows // chunks but the last, which has the rest.
AutoCuts cut_into(ExprPool* exprs, Expr rows, int64_t chunks);
// All of so many rows but the last of `chunks`, which has the rest. REQUIRES: there is one
AutoCuts cut_by(ExprPool* exprs, Expr rows, int64_t rows_per_chunk, int64_t chunks);

struct AutoCounts {
  size_t body_nodes = 0, inputs = 0, sums = 0, joined = 0, bodies = 0;
};

Result<AutoCounts> outline_auto_chunk(Program* program, const AutoPlan& plan, const AutoCuts& cuts, bool sums_in_f32);

}  // namespace sg
