// Samples of planes at the places that a grid names, between pixels, and their gradients; values are summed in double.
#include <algorithm>
#include <array>

#include "librun/cpu/grid_neighbours.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

using grid::kRun;
using grid::Sampler;
using Neighbour = grid::Neighbour<kRun>;
using Neighbours = grid::Neighbours<kRun>;

// Channels lie side by side, of planes and of places: a neighbour is a row of them.

// to = the sum of the neighbours' rows by their weights, place by place; `sums` has room for a row.
template <class C>
SG_CLONES void mix(const Neighbours& near, int64_t count, const C* plane, int64_t channels, double* sums, C* to) {
  for (int64_t p = 0; p < count; ++p, to += channels) {
    for (int64_t c = 0; c < channels; ++c) sums[c] = 0;
    for (int i = 0; i < near.count; ++i) {
      const Neighbour& n = near.list[i];
      if (n.at[p] < 0) continue;
      const C* from = plane + n.at[p] * channels;
      for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<double>(from[c]) * n.weight[p];
    }
    for (int64_t c = 0; c < channels; ++c) to[c] = static_cast<C>(sums[c]);
  }
}

template <class C>
Status sample(KernelCall& call) {
  SG_ASSIGN(Sampler<C> s, grid::sampler_of<C>(call, call.result()));
  const Tensor& input = call.tensor("input");
  const Tensor result = axis_last(call.result(), 1);
  const auto* x = contiguous_as(call, axis_last(input, 1), kDTypeOf<C>).template as<C>();
  const auto* places = contiguous_as(call, call.tensor("grid"), kDTypeOf<C>).template as<C>();
  const Tensor out = call.scratch().tensor(kDTypeOf<C>, result.sizes());
  const int64_t channels = input.dim(1), runs = (s.places + kRun - 1) / kRun;
  auto* sums = call.scratch().template take<double>(channels * call.team().size());
  for_rows(call, input.dim(0) * runs, 16 * kRun * channels, [&](int64_t run, int thread) {
    const int64_t batch = run / runs, first = run % runs * kRun, place = batch * s.places + first;
    const int64_t count = std::min<int64_t>(kRun, s.places - first);
    Neighbours near;
    grid::find_run(s, places + place * s.axes, count, &near);
    mix(near, count, x + batch * s.plane * channels, channels, sums + thread * channels,
        out.as<C>() + place * channels);
  });
  copy(call, result, out);
  return ok_status();
}

// One entry of the batch.
template <class C>
struct Backward {
  const C *points, *grad, *plane;
  double *to, *to_grid;  // the gradients; `to` may be null
  int64_t channels;
  int axes;
  bool slopes;
};

// What the gradients of places add to those of their neighbours and to those of the grid.
template <class C>
SG_CLONES void spread(const Neighbours& near, int64_t first, int64_t count, const Backward<C>& b) {
  for (int64_t p = 0; p < count; ++p) {
    const C* grad = b.grad + (first + p) * b.channels;
    double along[3] = {};
    for (int i = 0; i < near.count; ++i) {
      const Neighbour& n = near.list[i];
      if (n.at[p] < 0) continue;
      const int64_t row = n.at[p] * b.channels;
      for (int64_t c = 0; b.to && c < b.channels; ++c) b.to[row + c] += static_cast<double>(grad[c]) * n.weight[p];
      if (!b.slopes) continue;
      const double change = grid::dot(grad, b.plane + row, b.channels);
      for (size_t k = 0; k < 3; ++k) along[k] += change * n.slope[k][p];
    }
    for (int k = 0; k < b.axes; ++k) b.to_grid[(first + p) * b.axes + b.axes - 1 - k] = along[k];
  }
}

template <class C>
Status sample_backward(KernelCall& call) {
  const Tensor &input = call.tensor("input"), &grad_output = call.tensor("grad_output"), &points = call.tensor("grid");
  SG_ASSIGN(Sampler<C> s, grid::sampler_of<C>(call, grad_output));
  const auto* x = contiguous_as(call, axis_last(input, 1), kDTypeOf<C>).template as<C>();
  const auto* grad = contiguous_as(call, axis_last(grad_output, 1), kDTypeOf<C>).template as<C>();
  const auto* places = contiguous_as(call, points, kDTypeOf<C>).template as<C>();
  Tensor of_grid = call.scratch().tensor(DType::f64, points.sizes()), of_input;
  const int64_t channels = input.dim(1);
  if (!call.result(0).is_none()) {
    of_input = call.scratch().tensor(DType::f64, axis_last(input, 1).sizes());
    fill(call, of_input, Scalar::integer(0));
  }
  for_rows(call, input.dim(0), s.places * channels * 16, [&](int64_t batch, int) {
    const int64_t plane = batch * s.plane * channels, first = batch * s.places;
    const Backward<C> b{places + first * s.axes,
                        grad + first * channels,
                        x + plane,
                        of_input.is_none() ? nullptr : of_input.as<double>() + plane,
                        of_grid.as<double>() + first * s.axes,
                        channels,
                        s.axes,
                        s.mode != grid::kNearest};
    Neighbours near;
    for (int64_t place = 0; place < s.places; place += kRun) {
      const int64_t count = std::min<int64_t>(kRun, s.places - place);
      grid::find_run(s, b.points + place * s.axes, count, &near);
      spread(near, place, count, b);
    }
  });
  if (!of_input.is_none()) copy(call, axis_last(call.result(0), 1), of_input);
  copy(call, call.result(1), of_grid);
  return ok_status();
}

Status grid_sampler(KernelCall& call) {
  return call.tensor("input").dtype == DType::f64 ? sample<double>(call) : sample<float>(call);
}

Status grid_sampler_backward(KernelCall& call) {
  return call.tensor("input").dtype == DType::f64 ? sample_backward<double>(call) : sample_backward<float>(call);
}

constexpr KernelRow kRows[] = {
    {"aten.grid_sampler_2d.default", grid_sampler},
    {"aten.grid_sampler_3d.default", grid_sampler},
    {"aten.grid_sampler_2d_backward.default", grid_sampler_backward},
    {"aten.grid_sampler_3d_backward.default", grid_sampler_backward},
};

}  // namespace

std::span<const KernelRow> grid_sampler_kernels() { return kRows; }

}  // namespace sg::cpu
