// Maxima of windows of float planes, and their positions, a row of windows at a time: the results of work::largest_in.
#pragma once

#include "librun/kernel.h"
#include "librun/work/pool.h"

namespace sg::cpu {

// Whether positions in a plane, and those of empty windows beyond it, fit into 32 bits.
bool has_short_places(const work::Window& w);

// From "self" to the first result; positions to the second, if there is one. REQUIRES: float tensors on the CPU.
void largest_of_windows(KernelCall& call, const work::Window& w);

}  // namespace sg::cpu
