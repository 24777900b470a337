// One collective as NCCL operations.
//
// Reductions use NCCL's own if it has them. With `deterministic`, and if it has none (some kinds, booleans, maxima in
// which NaN must win), every member receives its slot of all inputs and reduces them in member order.
#pragma once

#include <functional>
#include <vector>

#include "librun/cuda/nccl.h"

namespace sg::cuda {

struct NcclRank {
  const Nccl& nccl;
  Device& device;
  uint32_t rank = 0;
  bool deterministic = false;
  // Returns once everything that NCCL processes asynchronously is on its stream (NcclGroups::issued).
  std::function<Status(ncclComm_t, const char* call)> issued;
};

// Whether a reduction is an exchange of slots and our own sum: asked for, or NCCL has none like it.
bool reduces_in_order(ReduceKind kind, DType dtype, bool deterministic);

// Puts the operations on the channel's stream and returns. Adds the device memory they need to `staging`: the caller
// releases it once the stream has passed them.
Status issue_collective(const NcclRank& by, const CollectiveCall& call, const RankGroup& members,
                        const NcclChannel& channel, std::vector<std::byte*>* staging);

}  // namespace sg::cuda
