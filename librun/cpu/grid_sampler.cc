// Samples of planes at fractional positions given by a grid, and their gradients; values are summed in double.
#include <algorithm>
#include <vector>

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

// Channels are innermost, in planes and in samples: a neighbour is a row of channels.

// to = the weighted sum of the neighbours' rows, sample by sample; `sums` has room for a row.
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

// The same for kWide channels, padded with zeros; samples are stored kWide apart.
template <int kWide, class C>
SG_CLONES void mix_few(const Neighbours& near, int64_t count, const C* plane, C* to) {
  for (int64_t p = 0; p < count; ++p, to += kWide) {
    double sums[kWide] = {};
    for (int i = 0; i < near.count; ++i) {
      const Neighbour& n = near.list[i];
      if (n.at[p] < 0) continue;
      const C* from = plane + n.at[p] * kWide;
      for (int c = 0; c < kWide; ++c) sums[c] += static_cast<double>(from[c]) * n.weight[p];
    }
    for (int c = 0; c < kWide; ++c) to[c] = static_cast<C>(sums[c]);
  }
}

// Number of channels stored together: their number, or a vector width if they are few.
int64_t width_of(int64_t channels) { return channels == 0 || channels > 8 ? channels : channels <= 4 ? 4 : 8; }

template <int kWide, class C>
SG_CLONES void interleave(const C* planes, int64_t channels, int64_t plane, int64_t begin, int64_t end, C* to) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t c = 0; c < kWide; ++c) to[i * kWide + c] = c < channels ? planes[c * plane + i] : C{0};
}

// Planes [batch, channels, ..] as [.., width_of(channels)], with zeros after the last channel.
template <class C>
const C* channels_last(KernelCall& call, const Tensor& planes) {
  const int64_t channels = planes.dim(1), width = width_of(channels);
  if (width > 8 || planes.elements() == 0)
    return contiguous_as(call, axis_last(planes, 1), kDTypeOf<C>).template as<C>();
  const int64_t batch = planes.dim(0), plane = planes.elements() / (channels * batch);
  const C* from = contiguous_as(call, planes, kDTypeOf<C>).template as<C>();
  C* to = call.scratch().template take<C>(batch * plane * width);
  const int64_t parts = (plane + kPieceElements - 1) / kPieceElements;
  call.team().parallel_for(batch * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t b = part / parts, first = part % parts * kPieceElements;
      const int64_t last = std::min(plane, first + kPieceElements);
      const C* own = from + b * channels * plane;
      if (width == 4) interleave<4>(own, channels, plane, first, last, to + b * plane * width);
      else interleave<8>(own, channels, plane, first, last, to + b * plane * width);
    }
  });
  return to;
}

template <int kWide, class C>
void sample_few(KernelCall& call, const Sampler<C>& s, const C* x, const C* places) {
  const Tensor& result = call.result();
  const bool direct = result.dtype == kDTypeOf<C> && result.is_contiguous();
  const Tensor out = direct ? result : call.scratch().tensor(kDTypeOf<C>, result.sizes());
  const int64_t channels = result.dim(1), runs = (s.places + kRun - 1) / kRun;
  for_rows(call, result.dim(0) * runs, 16 * kRun * kWide, [&](int64_t run, int) {
    const int64_t batch = run / runs, first = run % runs * kRun;
    const int64_t count = std::min<int64_t>(kRun, s.places - first);
    Neighbours near;
    C values[kRun * kWide];
    grid::find_run(s, places + (batch * s.places + first) * s.axes, count, false, &near);
    mix_few<kWide>(near, count, x + batch * s.plane * kWide, values);
    for (int64_t c = 0; c < channels; ++c) {
      C* to = out.as<C>() + (batch * channels + c) * s.places + first;
      for (int64_t p = 0; p < count; ++p) to[p] = values[p * kWide + c];
    }
  });
  if (!direct) copy(call, result, out);
}

template <class C>
Status sample(KernelCall& call) {
  SG_ASSIGN(Sampler<C> s, grid::sampler_of<C>(call, call.result()));
  const Tensor& input = call.tensor("input");
  const C* x = channels_last<C>(call, input);
  const auto* places = contiguous_as(call, call.tensor("grid"), kDTypeOf<C>).template as<C>();
  const int64_t channels = input.dim(1), runs = (s.places + kRun - 1) / kRun;
  if (width_of(channels) == 4) return sample_few<4>(call, s, x, places), ok_status();
  if (width_of(channels) == 8) return sample_few<8>(call, s, x, places), ok_status();
  const Tensor result = axis_last(call.result(), 1);
  const Tensor out = call.scratch().tensor(kDTypeOf<C>, result.sizes());
  auto* sums = call.scratch().template take<double>(channels * call.team().size());
  for_rows(call, input.dim(0) * runs, 16 * kRun * channels, [&](int64_t run, int thread) {
    const int64_t batch = run / runs, first = run % runs * kRun, place = batch * s.places + first;
    const int64_t count = std::min<int64_t>(kRun, s.places - first);
    Neighbours near;
    grid::find_run(s, places + place * s.axes, count, false, &near);
    mix(near, count, x + batch * s.plane * channels, channels, sums + thread * channels,
        out.as<C>() + place * channels);
  });
  copy(call, result, out);
  return ok_status();
}

// One batch entry.
template <class C>
struct Backward {
  const C *points, *grad, *plane;
  double *to, *to_grid;  // the gradients; `to` may be null
  int64_t channels;
  int axes;
  bool slopes;
};

// Adds the gradients of samples to those of their neighbours, and of the grid.
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
      for (int k = 0; k < b.axes; ++k) along[k] += change * n.slope[k][p];
    }
    for (int k = 0; k < b.axes; ++k) b.to_grid[(first + p) * b.axes + b.axes - 1 - k] = along[k];
  }
}

// grid::dot for kWide channels, with the same bits.
template <int kWide, class C>
SG_INLINE double dot_few(const double* a, const C* b) {
  double lane[kWide];
  for (int c = 0; c < kWide; ++c) lane[c] = 0.0 + a[c] * static_cast<double>(b[c]);
  if constexpr (kWide == 8)
    for (int c = 0; c < 4; ++c) lane[c] += lane[c + 4];
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// to += grad * weight; reads everything before it writes, so that it vectorizes.
template <int kWide>
SG_INLINE void add_few(const double* grad, double weight, double* to) {
  double sums[kWide];
  for (int c = 0; c < kWide; ++c) sums[c] = to[c] + grad[c] * weight;
  for (int c = 0; c < kWide; ++c) to[c] = sums[c];
}

// The same for kWide channels. A pixel's sums are accumulated sample by sample, as in `spread`; slopes neighbour by
// neighbour.
template <int kWide, class C>
SG_CLONES void spread_few(const Neighbours& near, int64_t first, int64_t count, const Backward<C>& b) {
  double grad[kRun * kWide], along[3][kRun] = {};
  for (int64_t i = 0; i < count * kWide; ++i) grad[i] = static_cast<double>(b.grad[first * kWide + i]);
  for (int64_t p = 0; b.to && p < count; ++p)
    for (int i = 0; i < near.count; ++i)
      if (const Neighbour& n = near.list[i]; n.at[p] >= 0)
        add_few<kWide>(grad + p * kWide, n.weight[p], b.to + n.at[p] * kWide);
  for (int i = 0; b.slopes && i < near.count; ++i) {
    const Neighbour& n = near.list[i];
    double change[kRun] = {};
    for (int64_t p = 0; p < count; ++p)
      if (n.at[p] >= 0) change[p] = dot_few<kWide>(grad + p * kWide, b.plane + n.at[p] * kWide);
    for (int k = 0; k < b.axes; ++k)
      for (int64_t p = 0; p < count; ++p) along[k][p] += n.at[p] < 0 ? 0.0 : change[p] * n.slope[k][p];
  }
  for (int64_t p = 0; p < count; ++p)
    for (int k = 0; k < b.axes; ++k) b.to_grid[(first + p) * b.axes + b.axes - 1 - k] = along[k][p];
}

template <class C>
Status sample_backward(KernelCall& call) {
  const Tensor &input = call.tensor("input"), &grad_output = call.tensor("grad_output"), &points = call.tensor("grid");
  SG_ASSIGN(Sampler<C> s, grid::sampler_of<C>(call, grad_output));
  const C *x = channels_last<C>(call, input), *grad = channels_last<C>(call, grad_output);
  const auto* places = contiguous_as(call, points, kDTypeOf<C>).template as<C>();
  Tensor of_grid = call.scratch().tensor(DType::f64, points.sizes()), of_input;
  const int64_t channels = input.dim(1), width = width_of(channels);
  if (!call.result(0).is_none()) {
    const Tensor last = axis_last(input, 1);
    std::vector<int64_t> sizes(last.sizes().begin(), last.sizes().end());
    sizes.back() = width;
    of_input = call.scratch().tensor(DType::f64, sizes);
    fill(call, of_input, Scalar::integer(0));
  }
  for_rows(call, input.dim(0), s.places * width * 16, [&](int64_t batch, int) {
    const int64_t plane = batch * s.plane * width, first = batch * s.places;
    const Backward<C> b{places + first * s.axes,
                        grad + first * width,
                        x + plane,
                        of_input.is_none() ? nullptr : of_input.as<double>() + plane,
                        of_grid.as<double>() + first * s.axes,
                        width,
                        s.axes,
                        s.mode != grid::kNearest};
    Neighbours near;
    for (int64_t place = 0; place < s.places; place += kRun) {
      const int64_t count = std::min<int64_t>(kRun, s.places - place);
      grid::find_run(s, b.points + place * s.axes, count, b.slopes, &near);
      if (width == 4) spread_few<4>(near, place, count, b);
      else if (width == 8) spread_few<8>(near, place, count, b);
      else spread(near, place, count, b);
    }
  });
  if (!of_input.is_none()) {
    of_input.shape[static_cast<size_t>(of_input.rank - 1)] = channels;
    copy(call, axis_last(call.result(0), 1), of_input);
  }
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
