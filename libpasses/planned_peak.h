// The planned peak, as sg-stat prints it: what passes promise, before and after. Internal to libpasses.
#pragma once

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

// Bytes of the plan of a program.
int64_t planned_peak(const Program& program, const SizeValues& sizes);

// The most of any program; sizes that nobody gave a number are as sg-stat assumes them.
int64_t planned_peak(const Job& job);

}  // namespace sg
