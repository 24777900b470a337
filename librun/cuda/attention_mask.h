// Masks of attention for the kernels that go by tiles (kernels/flash_mask.h).
#pragma once

#include <optional>

#include "librun/cuda/kernels/flash_mask.h"
#include "librun/kernel.h"

namespace sg::cuda {

// A mask that broadcasts to [batch, heads, queries, keys]; none if kernels cannot read it.
std::optional<FlashMask> flash_mask(const Tensor& mask, int64_t keys);

// Sizes of the scores.
struct FlashSizes {
  int64_t batches = 1, heads = 1, queries = 0, keys = 0;
};
// Launches the kernel that reads the mask for its tiles, which are scratch of the call.
FlashTiles flash_tiles(KernelCall& call, const FlashMask& mask, const FlashSizes& sizes);

}  // namespace sg::cuda
