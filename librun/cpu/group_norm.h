// Group norm: statistics over groups of channels of an entry.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

struct NormGroups {
  int64_t batch, groups, channels, inner;  // `channels` per group
  int64_t rows() const { return batch * groups; }
  int64_t length() const { return channels * inner; }
};

// aten.group_norm only gives the number of groups; for instance_norm each channel is a group.
NormGroups norm_groups_of(KernelCall& call);

Status group_norm(KernelCall& call);  // of native_group_norm, group_norm and instance_norm

}  // namespace sg::cpu
