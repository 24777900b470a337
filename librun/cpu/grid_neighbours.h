// The arguments of a grid_sampler_* call, and the vectorized neighbours of a run of places (work/grid.h).
#pragma once

#include "librun/kernel.h"
#include "librun/work/grid.h"

namespace sg::cpu::grid {

using namespace work::grid;

constexpr int kRun = 32;

// C: the element type; float for half precision.
template <class C>
Result<Sampler<C>> sampler_of(const KernelCall& call, const Tensor& output);

template <class C>
void find_run(const Sampler<C>& s, const C* grid, int64_t count, bool slopes, Neighbours<kRun>* near);

}  // namespace sg::cpu::grid
