// What grouped_mm.cc of the processor and of devices hold a call of _grouped_mm against.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

// Sizes that fit, as many offsets as groups, integer ones, and no bias. What the offsets hold is not looked at.
Status check_grouped_sizes(const KernelCall& call);

}  // namespace sg::cpu
