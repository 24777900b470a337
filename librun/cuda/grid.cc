// Samples at fractional positions: one lane per channel of a sample, or per plane where samples add to it in order.
#include "librun/cpu/grid_neighbours.h"
#include "librun/cpu/rows.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cuda {
namespace {

using namespace work::grid;

template <class C>
Result<Samples<C>> samples_of(KernelCall& call, const Tensor& output) {
  SG_ASSIGN(const Sampler<C> s, cpu::grid::sampler_of<C>(call, output));
  const Tensor& input = call.tensor("input");
  const Tensor planes = in_rows_as(call, axis_last(input, 1), cpu::kDTypeOf<C>),
               points = in_rows_as(call, call.tensor("grid"), cpu::kDTypeOf<C>);
  return Samples<C>{s, points.template as<C>(), planes.template as<C>(), input.dim(1)};
}

template <class C>
Status sample(KernelCall& call) {
  const Tensor result = axis_last(call.result(), 1);
  SG_ASSIGN(const Samples<C> samples, samples_of<C>(call, call.result()));
  const Tensor out = backend_of(call).scratch(cpu::kDTypeOf<C>, result.sizes());
  for_each(call, out.elements(), 16, Sample<C>{samples, out.as<C>()});
  backend_of(call).copy(result, out);
  return ok_status();
}

template <class C>
Status sample_backward(KernelCall& call) {
  const Tensor &input = call.tensor("input"), &grad_output = call.tensor("grad_output");
  SG_ASSIGN(const Samples<C> samples, samples_of<C>(call, grad_output));
  const Tensor grad = in_rows_as(call, axis_last(grad_output, 1), cpu::kDTypeOf<C>);
  if (!call.result(0).is_none()) {
    const Tensor result = axis_last(call.result(0), 1), out = backend_of(call).scratch(DType::f64, result.sizes());
    backend_of(call).fill(out, Scalar::integer(0));
    for_each(call, input.dim(0) * samples.channels, 16 * samples.sampler.places,
             PlaneSlope<C>{samples, grad.as<C>(), out.as<double>()});
    backend_of(call).copy(result, out);
  }
  const Tensor of_grid = backend_of(call).scratch(DType::f64, call.tensor("grid").sizes());
  for_each(call, input.dim(0) * samples.sampler.places, 16 * samples.channels,
           GridSlope<C>{samples, grad.as<C>(), of_grid.as<double>()});
  backend_of(call).copy(call.result(1), of_grid);
  return ok_status();
}

Status grid_sampler(KernelCall& call) {
  return call.tensor("input").dtype == DType::f64 ? sample<double>(call) : sample<float>(call);
}

Status grid_sampler_backward(KernelCall& call) {
  return call.tensor("input").dtype == DType::f64 ? sample_backward<double>(call) : sample_backward<float>(call);
}

constexpr KernelRow kGridRows[] = {
    {"aten.grid_sampler_2d.default", grid_sampler},
    {"aten.grid_sampler_3d.default", grid_sampler},
    {"aten.grid_sampler_2d_backward.default", grid_sampler_backward},
    {"aten.grid_sampler_3d_backward.default", grid_sampler_backward},
};

}  // namespace

std::span<const KernelRow> grid_kernels() { return kGridRows; }

}  // namespace sg::cuda
