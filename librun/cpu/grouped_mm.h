// Products of adjacent groups: checks of _grouped_mm and _scaled_grouped_mm calls, and the products they consist of.
#pragma once

#include <vector>

#include "librun/kernel.h"

namespace sg::cpu {

// Checks sizes, that there is one integer offset per group, and that there is no bias. Does not look at the offsets'
// values.
Status check_grouped_sizes(const KernelCall& call);

// One group's matrices, and the group's beginning along the shared axis.
struct GroupProduct {
  Tensor out, a, b;
  int64_t begin = 0;
};

// Splits by the call's offsets; the operands are laid out like the call's. REQUIRES: check_grouped_sizes
Result<std::vector<GroupProduct>> group_products(const KernelCall& call, const Tensor& out, const Tensor& a,
                                                 const Tensor& b);

}  // namespace sg::cpu
