// The largest of windows over planes of floats, and where it was, a row of windows at a time: what work::largest_in
// finds.
#pragma once

#include "librun/kernel.h"
#include "librun/work/pool.h"

namespace sg::cpu {

// From "self" to the first result; places to the second where there is one. REQUIRES: tensors of floats on the
// processor.
void largest_of_windows(KernelCall& call, const work::Window& w);

}  // namespace sg::cpu
