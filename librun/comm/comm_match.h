// Checks that a rank may make a call, and that the calls of a group's members form one collective.
#pragma once

#include <span>

#include "librun/comm/comm.h"

namespace sg {

// About a call of a group that this rank is in no part of.
Error not_in_group(const CollectiveCall& call, uint32_t rank);

// `calls` by group rank; each has passed check_call. The error names both nodes and their ranks.
Status check_match(std::span<const CollectiveCall> calls, const RankGroup& group);

// Elements of the slots that `call` sends to and receives from group rank `peer`. REQUIRES: a checked all_to_all
int64_t sent_to(const CollectiveCall& call, size_t peer, size_t members);
int64_t received_from(const CollectiveCall& call, size_t peer, size_t members);

}  // namespace sg
