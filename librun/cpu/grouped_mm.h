// Products of groups that lie side by side: what a call of _grouped_mm or _scaled_grouped_mm is held against, and what
// it multiplies.
#pragma once

#include <vector>

#include "librun/kernel.h"

namespace sg::cpu {

// Sizes that fit, as many offsets as groups, integer ones, and no bias. What the offsets hold is not looked at.
Status check_grouped_sizes(const KernelCall& call);

// One group's matrices, and where it begins along the axis that the groups share.
struct GroupProduct {
  Tensor out, a, b;
  int64_t begin = 0;
};

// Of the call's offsets, and of operands that lie as the call's. REQUIRES: check_grouped_sizes
Result<std::vector<GroupProduct>> group_products(const KernelCall& call, const Tensor& out, const Tensor& a,
                                                 const Tensor& b);

}  // namespace sg::cpu
