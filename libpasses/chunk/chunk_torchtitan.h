// TorchTitan's own options of EP overlap, as KEY=VALUE words, put into ours. The same values are refused as there.
#pragma once

#include <string>
#include <vector>

#include "libpasses/chunk/chunk.h"

namespace sg {

struct TorchTitanChunking {
  bool enabled = false;
  ChunkOptions options;
};

// Keys: enabled, strategy, chunk_dim, module_fqn, disable_early_grad_accumulation, each with or without `ep_overlap.`
// before it.
Result<TorchTitanChunking> parse_torchtitan(const std::vector<std::string>& words);

}  // namespace sg
