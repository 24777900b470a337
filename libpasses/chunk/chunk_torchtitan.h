// TorchTitan's own options for EP overlap, as KEY=VALUE words, translated into ours. Values that TorchTitan refuses are
// refused here too.
#pragma once

#include <string>
#include <vector>

#include "libpasses/chunk/chunk.h"

namespace sg {

struct TorchTitanChunking {
  bool enabled = false;
  ChunkOptions options;
};

// Keys: enabled, strategy, chunk_dim, module_fqn, disable_early_grad_accumulation, each optionally prefixed by
// `ep_overlap.`.
Result<TorchTitanChunking> parse_torchtitan(const std::vector<std::string>& words);

}  // namespace sg
