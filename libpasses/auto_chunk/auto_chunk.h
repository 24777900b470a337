// sg-chunk --auto: amplifiers - above all the loss head - run once per chunk of their rows, forward and backward
// together, so the enlarged tensor is never materialized in full.
//
// Amplifier  a forward node whose result has more than twice as many elements as its data operands (or more bytes than
//            `ratio` times all its operands), and more than `min_output` bytes; and which the loss reduces, rather than
//            another layer. Any op with an axis rule.
// Region     from the amplifier to the last node that takes a chunked value of its size (auto_chunk_plan.h): proven by
//            the axis rules, or refused with node and rule. With best effort it stays whole, and is reported.
// Calls      one body, called for each chunk in turn (auto_chunk_outline.h).
// Chunks     as many as requested, or of the requested number of rows; or the fewest with which the planned peak is
//            within `peak_bytes`. Else, for each amplifier whose values set the planned peak, the fewest with which
//            they no longer do. Where several share the peak (micro-batches), so that none alone lowers it enough,
//            the fewest that do, the same number for all.
// Ranks      take the same chunks.
// Results    reassociated: sums over the rows are added chunk by chunk, in f32.
// Cost       linear in the nodes for each amplifier; a liveness analysis for each number of chunks that is tried,
//            with `peak_bytes` a plan; for a shared peak, all of that for each number.
// Limits     random numbers, collectives and maxima over the rows within the region are refused, and so is a total that
//            the region itself divides by (docs/design/010-chunk.md lists what is left).
// Tests      golden/chunk/auto_*, passes/run_auto_chunks.py and run_auto_chunk_properties.py, unit/auto_chunk_test.cc.
#pragma once

#include <optional>

#include "libpasses/pass.h"

namespace sg {

struct AutoChunkOptions {
  std::optional<int64_t> chunks, rows_per_chunk, peak_bytes;  // one at most
  int64_t least_rows = 1;                                     // in each chunk
  int64_t min_output = 1 << 20;                               // bytes
  std::optional<double> ratio;                                // of bytes
  bool sums_in_f32 = true;
};

Result<Change> auto_chunk(Job* job, const AutoChunkOptions& options, PassContext& context);

}  // namespace sg
