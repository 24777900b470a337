// The search for a number of chunks. Internal to sg-chunk --auto.
#pragma once

#include <cstdint>
#include <functional>

#include "libgraph/base/result.h"

namespace sg {

struct TriedChunks {
  int64_t peak_bytes = 0;
  bool is_enough = false;
};

struct ChunkSearch {
  int64_t most = 1;          // that the rows allow
  int64_t before_bytes = 0;  // the peak without chunks
  bool has_limit = false;    // on the peak
};

// Doubles the number of chunks until it suffices, then bisects. If none suffices, returns the fewest tried within 1 %
// of the lowest peak, or, if there is a limit, the fewest tried with exactly the lowest peak, so that the error can
// report it; 1 = none lowers it.
Result<int64_t> fewest_chunks(const ChunkSearch& search, const std::function<Result<TriedChunks>(int64_t)>& attempt);

}  // namespace sg
