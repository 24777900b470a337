// Sizes whose numbers are known and that are no memory of any machine: 2^62 rows of 12 bytes.
#pragma once

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

// cannot_apply with the first tensor of a program, bodies of calls included, whose symbols all have numbers and whose
// bytes have none: they pass 63 bits, or a size of it divides by nothing. Else whoever counts it would leave it out.
Status check_countable(const Program& program, const SizeValues& values);

}  // namespace sg
