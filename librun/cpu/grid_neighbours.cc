#include "librun/cpu/grid_neighbours.h"

#include "librun/any_device/resample.h"
#include "librun/cpu/isa.h"

namespace sg::cpu::grid {

template <class C>
Result<Sampler<C>> sampler_of(const KernelCall& call, const Tensor& output) {
  const Tensor &input = call.tensor("input"), &points = call.tensor("grid");
  Sampler<C> s;
  s.axes = plane_axes(call);
  s.mode = call.integer("interpolation_mode"), s.padding = call.integer("padding_mode"),
  s.aligned = call.flag("align_corners");
  bool fits = input.rank == s.axes + 2 && points.rank == input.rank && output.rank == input.rank &&
              points.dim(-1) == s.axes && points.dim(0) == input.dim(0) && output.dim(0) == input.dim(0) &&
              output.dim(1) == input.dim(1);
  for (int k = 0; fits && k < s.axes; ++k) {
    s.size[k] = input.dim(2 + k);
    s.plane *= input.dim(2 + k);
    s.places *= points.dim(1 + k);
    fits = output.dim(2 + k) == points.dim(1 + k) && input.dim(2 + k) > 0;
  }
  if (!fits) return call.fail("input and grid do not fit each other");
  return s;
}

template <class C>
SG_CLONES void find_run(const Sampler<C>& s, const C* grid, int64_t count, bool slopes, Neighbours<kRun>* near) {
  find_neighbours(s, grid, count, slopes, near);
}

template Result<Sampler<float>> sampler_of(const KernelCall&, const Tensor&);
template Result<Sampler<double>> sampler_of(const KernelCall&, const Tensor&);
template void find_run(const Sampler<float>&, const float*, int64_t, bool, Neighbours<kRun>*);
template void find_run(const Sampler<double>&, const double*, int64_t, bool, Neighbours<kRun>*);

}  // namespace sg::cpu::grid
