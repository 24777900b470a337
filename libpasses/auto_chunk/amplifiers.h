// Amplifiers: nodes that make much more of the data of a step than they take. Internal to sg-chunk --auto.
#pragma once

#include <vector>

#include "libgraph/expr/sizes.h"
#include "libpasses/auto_chunk/auto_chunk.h"

namespace sg {

struct Amplifier {
  NodeId node;
  int64_t bytes = 0;        // of its result, for the sizes of the capture
  int64_t taken_bytes = 0;  // of all its tensor operands
  double ratio() const { return taken_bytes == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(taken_bytes); }
};

// As captured; what has no hint takes its upper bound.
SizeValues assumed_sizes(const Program& program);

struct Amplifiers {
  std::vector<Amplifier> found;  // of the forward, the largest result first
  // As large, but another layer contracts what comes of them, before the loss: not meant.
  std::vector<Amplifier> layers;
};

Amplifiers find_amplifiers(const Program& program, const AutoChunkOptions& options);

}  // namespace sg
