// Connections between the members of a group, made before the first step.
//
// NCCL connects two ranks within the first send or receive between them, and that call is issued only once the other
// rank makes its own. If two ranks use two groups for the first time in different orders, as they are free to do, each
// would wait for the other. So all pairs of every group that needs it exchange a byte at the start, in the file's order
// of groups. What NCCL's own collectives need is connected as communicators are created (NCCL_RUNTIME_CONNECT=0).
#pragma once

#include <vector>

#include "libgraph/job.h"
#include "librun/cuda/nccl_collectives.h"

namespace sg::cuda {

// By GroupId: whether some collective of the job on that group is made of sends and receives. Each connection takes
// memory, so the others are left without.
std::vector<bool> exchanging_groups(const Job& job, bool deterministic);

// Every member calls this. `bytes` is device memory, two for each member; it is in use until the stream has passed.
Status connect_members(const NcclRank& by, const RankGroup& members, const NcclChannel& channel, std::byte* bytes);

}  // namespace sg::cuda
