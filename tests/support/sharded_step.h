// Random steps of two ranks whose parameters are sharded: each layer gathers them in the forward, and the ranks differ
// in what they pad. By its own memory each would gather again elsewhere. As text; equal seeds give equal steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sg::test {

std::string sharded_step(uint64_t seed, size_t layers);

}  // namespace sg::test
