// Amplifiers: forward nodes whose result is much larger than the data they take. Internal to sg-chunk --auto.
#pragma once

#include <vector>

#include "libgraph/expr/sizes.h"
#include "libpasses/auto_chunk/auto_chunk.h"

namespace sg {

struct Amplifier {
  NodeId node;
  int64_t bytes = 0;        // of its result, at the captured sizes
  int64_t taken_bytes = 0;  // of all its tensor operands
  double ratio() const { return taken_bytes == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(taken_bytes); }
};

// The captured sizes; a symbol without a hint takes its upper bound.
SizeValues assumed_sizes(const Program& program);

struct Amplifiers {
  std::vector<Amplifier> found;  // in the forward, largest result first
  // As large, but another layer contracts their values before the loss: not chunked.
  std::vector<Amplifier> layers;
};

Amplifiers find_amplifiers(const Program& program, const AutoChunkOptions& options);

}  // namespace sg
