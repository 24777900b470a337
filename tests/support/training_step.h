// Random training steps in small: a forward of products and pointwise ops over tensors of different widths, a loss, and
// a backward that needs some of its values again. As text; equal seeds give equal steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sg::test {

struct TrainingStepOptions {
  size_t values = 10;    // of the forward, each a tensor of its own
  unsigned views = 15;   // percent of values that are seen through a view too
  unsigned random = 10;  // percent that draw random numbers
  size_t layers = 1;     // the forward is cut into so many modules, layers.0 and on
};

std::string training_step(uint64_t seed, const TrainingStepOptions& options = {});

}  // namespace sg::test
