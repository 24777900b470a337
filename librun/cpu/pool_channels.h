// Pools of float tensors whose channels are innermost in memory (work/shapes.h: inner_channels, which gives `axis`): a
// vector of channels at a time. The results of pool_maxima.h, pool_averages.h and of gradients of maxima.
#pragma once

#include "librun/cpu/pool_averages.h"
#include "librun/kernel.h"
#include "librun/work/pool.h"

namespace sg::cpu {

void largest_by_channels(KernelCall& call, const work::Window& w, int axis);
Status add_to_places_by_channels(KernelCall& call, const work::Window& w, int axis);  // "grad_output" at "indices"
void average_by_channels(KernelCall& call, const work::Window& w, const Divisor& by, int axis);
void spread_by_channels(KernelCall& call, const work::Window& w, const Divisor& by, int axis);

}  // namespace sg::cpu
