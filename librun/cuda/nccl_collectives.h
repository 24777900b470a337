// One collective as operations of NCCL.
//
// Sums are NCCL's own where it has them. With `deterministic`, and where it has none (kinds, booleans, maxima that a
// NaN has to win), every member gets its slot of all inputs and adds them up in the order of the members.
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
  // Returns when what NCCL goes on with by itself is on its stream (NcclGroups::issued).
  std::function<Status(ncclComm_t, const char* call)> issued;
};

// Puts the operations on the channel's stream and returns. Memory of the device that they need is added to `staging`:
// the caller gives it back when the stream is past them.
Status issue_collective(const NcclRank& by, const CollectiveCall& call, const RankGroup& members,
                        const NcclChannel& channel, std::vector<std::byte*>* staging);

}  // namespace sg::cuda
