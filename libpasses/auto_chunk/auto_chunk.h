// sg-chunk --auto: runs amplifiers - above all the loss head - once per chunk of their rows, forward and backward
// together, so the enlarged tensor is never materialized in full.
//
// Amplifier  a forward node whose result has more than twice as many elements as its data operands (or more bytes than
//            `ratio` times all its operands), and more than `min_output` bytes; the loss must reduce it, not another
//            layer. Any op with an axis rule.
// Region     from the amplifier to the last node that takes a chunked value of its size (auto_chunk_plan.h): proven by
//            the axis rules, or refused with node and rule. With best effort it stays whole, and is reported.
// Calls      one body, called for each chunk in turn (auto_chunk_outline.h).
// Chunks     as many as requested, or of the requested number of rows, or the fewest that keep the planned peak within
//            `peak_bytes`. By default, for each amplifier whose values set the planned peak, the fewest chunks with
//            which they no longer do. If several amplifiers (micro-batches) share the peak, so that chunking one alone
//            does not lower it enough, the fewest that do, with the same number for all.
// Ranks      all use the same chunks.
// Results    reassociated: sums over the rows are added chunk by chunk, in f32.
// Cost       linear in the nodes for each amplifier; for each number of chunks tried, a liveness analysis, or a memory
//            plan with `peak_bytes`; for a shared peak, all of that for each number.
// Limits     random numbers and maxima over the rows within the region are refused, and so is a total that the region
//            itself divides by (docs/design/010-chunk.md lists the remaining cases).
// Tests      golden/chunk/auto_*, passes/run_auto_chunks.py and run_auto_chunk_properties.py, unit/auto_chunk_test.cc.
#pragma once

#include <optional>

#include "libpasses/pass.h"

namespace sg {

struct AutoChunkOptions {
  std::optional<int64_t> chunks, rows_per_chunk, peak_bytes;  // at most one
  int64_t least_rows = 1;                                     // in each chunk
  int64_t min_output = 1 << 20;                               // bytes
  std::optional<double> ratio;                                // in bytes
  bool sums_in_f32 = true;
};

Result<Change> auto_chunk(Job* job, const AutoChunkOptions& options, PassContext& context);

}  // namespace sg
