// The planned peak as sg-stat prints it: what passes report before and after. Internal to libpasses.
#pragma once

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

// Bytes of the memory plan of a program.
int64_t planned_peak(const Program& program, const SizeValues& sizes);

// The maximum over programs; symbols without a number get the sizes that sg-stat assumes.
int64_t planned_peak(const Job& job);

}  // namespace sg
