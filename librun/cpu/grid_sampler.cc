// Samples of planes at the places that a grid names, between pixels, and their gradients.
//
// Places are computed in the element type (halves: float), as PyTorch does: which pixels are neighbours, and whether a
// place lies outside, hangs on the rounding. Values are summed in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "librun/cpu/kernels.h"
#include "librun/cpu/resample.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

enum Mode : int64_t { kLinear = 0, kNearest = 1, kCubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

template <class C>
struct Sampler {
  int axes = 2;
  int64_t mode = 0, padding = 0;
  bool aligned = false;
  std::array<int64_t, 3> size{1, 1, 1};  // of a plane, by axis of the input
  int64_t plane = 1, places = 1;         // elements of a plane; places of the grid a batch entry

  struct Place {
    C at = 0;     // in pixels
    C slope = 0;  // of `at` by the grid's number
  };

  C unnormalized(C x, int64_t n) const {
    return aligned ? ((x + 1) / 2) * static_cast<C>(n - 1) : ((x + 1) * static_cast<C>(n) - 1) / 2;
  }

  Place reflected(C x, C slope, int64_t n) const {
    int64_t twice_low = aligned ? 0 : -1, twice_high = aligned ? 2 * (n - 1) : 2 * n - 1;
    if (twice_low == twice_high) return {0, 0};
    C low = static_cast<C>(twice_low) / 2, span = static_cast<C>(twice_high - twice_low) / 2;
    x -= low;
    if (x < 0) x = -x, slope = -slope;
    C extra = std::fmod(x, span), flips = std::floor(x / span);
    bool even = std::fmod(flips, C(2)) == 0;
    return even ? Place{extra + low, slope} : Place{span - extra + low, -slope};
  }

  static Place clipped(Place p, int64_t n) {
    C most = static_cast<C>(n - 1);
    if (!(p.at > 0)) return {0, 0};  // NaN too
    return p.at >= most ? Place{most, 0} : p;
  }

  Place padded(C pixel, C slope, int64_t n) const {
    Place p{pixel, slope};
    if (padding == kReflection) p = reflected(pixel, slope, n);
    return padding == kZeros ? p : clipped(p, n);
  }

  Place place(C x, int64_t n) const {
    C slope = aligned ? static_cast<C>(n - 1) / 2 : static_cast<C>(n) / 2;
    if (mode == kCubic) return {unnormalized(x, n), slope};  // each neighbour is padded by itself
    return padded(unnormalized(x, n), slope, n);
  }
};

// One pixel that takes part in a sample: where it lies (-1: outside), its weight, the weight's slope along each axis.
struct Neighbour {
  int64_t at = -1;
  double weight = 0;
  std::array<double, 3> slope{};
};

// Up to 16 of them: 2 or 4 an axis.
struct Neighbours {
  std::array<Neighbour, 16> list;
  int count = 0;
  std::span<const Neighbour> all() const { return {list.data(), static_cast<size_t>(count)}; }
};

// One axis: pixel numbers, weights and slopes.
struct AxisTaps {
  std::array<int64_t, 4> at{};
  std::array<double, 4> weight{}, slope{};
  int count = 0;
};

constexpr double kFar = 1e15;  // no plane is as large

template <class C>
int64_t pixel(C x) {
  return std::abs(x) < C(kFar) ? static_cast<int64_t>(x) : -1;
}

void cubic_weights(double t, AxisTaps* taps) {
  constexpr double a = -0.75;
  for (int k = 0; k < 4; ++k) {
    double x = std::abs(k - 1 - t), sign = k - 1 - t < 0 ? 1 : -1;  // of the distance by t
    bool near = x < 1 || (x == 1 && (k == 1 || k == 2));
    taps->weight[static_cast<size_t>(k)] =
        near ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    double slope = near ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a;
    taps->slope[static_cast<size_t>(k)] = sign * slope;
  }
}

template <class C>
AxisTaps axis_taps(const Sampler<C>& s, C x, int64_t n) {
  AxisTaps taps;
  auto p = s.place(x, n);
  if (s.mode == kNearest) {
    taps.count = 1, taps.at[0] = pixel(std::nearbyint(p.at)), taps.weight[0] = 1;
  } else if (s.mode == kLinear) {
    C low = std::floor(p.at), share = p.at - low;
    taps.count = 2;
    taps.at = {pixel(low), std::abs(low) < C(kFar) ? pixel(low) + 1 : -1};
    taps.weight = {1 - static_cast<double>(share), static_cast<double>(share)};
    taps.slope = {-static_cast<double>(p.slope), static_cast<double>(p.slope)};
  } else {
    C low = std::floor(p.at);
    taps.count = 4;
    cubic_weights(static_cast<double>(p.at - low), &taps);
    for (int k = 0; k < 4; ++k) {
      taps.slope[static_cast<size_t>(k)] *= static_cast<double>(p.slope);
      taps.at[static_cast<size_t>(k)] = pixel(s.padded(low + static_cast<C>(k - 1), 0, n).at);
    }
  }
  return taps;
}

// `grid`: the numbers of one place, x (the last axis) first.
template <class C>
Neighbours neighbours_of(const Sampler<C>& s, const C* grid) {
  std::array<AxisTaps, 3> taps;
  int total = 1;
  for (int k = 0; k < s.axes; ++k) {
    taps[static_cast<size_t>(k)] = axis_taps(s, grid[s.axes - 1 - k], s.size[static_cast<size_t>(k)]);
    total *= taps[static_cast<size_t>(k)].count;
  }
  Neighbours out;
  for (out.count = 0; out.count < total; ++out.count) {
    Neighbour& n = out.list[static_cast<size_t>(out.count)];
    n.at = 0, n.weight = 1, n.slope.fill(1);
    int rest = out.count;
    for (int k = s.axes - 1; k >= 0; --k) {
      const AxisTaps& t = taps[static_cast<size_t>(k)];
      auto i = static_cast<size_t>(rest % t.count);
      rest /= t.count;
      n.weight *= t.weight[i];
      for (int j = 0; j < s.axes; ++j) n.slope[static_cast<size_t>(j)] *= j == k ? t.slope[i] : t.weight[i];
    }
    rest = out.count;
    int64_t step = 1;
    for (int k = s.axes - 1; k >= 0; --k) {
      const AxisTaps& t = taps[static_cast<size_t>(k)];
      int64_t at = t.at[static_cast<size_t>(rest % t.count)], size = s.size[static_cast<size_t>(k)];
      rest /= t.count;
      if (n.at >= 0) n.at = at >= 0 && at < size ? n.at + at * step : -1;
      step *= size;
    }
  }
  return out;
}

// Places side by side, for one channel after the other: of each, they see a plane that the caches hold.
constexpr int64_t kRun = 32;

struct Run {
  std::array<Neighbours, kRun> list;
  int64_t count = 0;
  std::span<const Neighbours> places() const { return {list.data(), static_cast<size_t>(count)}; }
};

template <class C>
Run run_of(const Sampler<C>& s, const C* grid, int64_t batch, int64_t first) {
  Run run;
  run.count = std::min(kRun, s.places - first);
  for (int64_t i = 0; i < run.count; ++i)
    run.list[static_cast<size_t>(i)] = neighbours_of(s, grid + (batch * s.places + first + i) * s.axes);
  return run;
}

template <class C>
Result<Sampler<C>> sampler_of(KernelCall& call, const Tensor& output) {
  const Tensor &input = call.tensor("input"), &grid = call.tensor("grid");
  Sampler<C> s;
  s.axes = plane_axes(call);
  s.mode = call.integer("interpolation_mode"), s.padding = call.integer("padding_mode"),
  s.aligned = call.flag("align_corners");
  bool fits = input.rank == s.axes + 2 && grid.rank == input.rank && output.rank == input.rank &&
              grid.dim(-1) == s.axes && grid.dim(0) == input.dim(0) && output.dim(0) == input.dim(0) &&
              output.dim(1) == input.dim(1);
  for (int k = 0; fits && k < s.axes; ++k) {
    s.size[static_cast<size_t>(k)] = input.dim(2 + k);
    s.plane *= input.dim(2 + k);
    s.places *= grid.dim(1 + k);
    fits = output.dim(2 + k) == grid.dim(1 + k) && input.dim(2 + k) > 0;
  }
  if (!fits) return call.fail("input and grid do not fit each other");
  return s;
}

template <class C>
Status sample(KernelCall& call) {
  SG_ASSIGN(Sampler<C> s, sampler_of<C>(call, call.result()));
  const Tensor& input = call.tensor("input");
  const auto* x = contiguous_as(call, input, DType::f64).as<double>();
  const auto* grid = contiguous_as(call, call.tensor("grid"), kDTypeOf<C>).template as<C>();
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  int64_t channels = input.dim(1), runs = (s.places + kRun - 1) / kRun;
  for_rows(call, input.dim(0) * runs, 16 * kRun * channels, [&](int64_t row, int) {
    int64_t batch = row / runs, place = row % runs * kRun;
    Run near = run_of(s, grid, batch, place);
    for (int64_t c = 0; c < channels; ++c) {
      const double* from = x + (batch * channels + c) * s.plane;
      double* to = out.as<double>() + (batch * channels + c) * s.places + place;
      for (const Neighbours& each : near.places()) {
        double sum = 0;
        for (const Neighbour& n : each.all())
          if (n.at >= 0) sum += from[n.at] * n.weight;
        *to++ = sum;
      }
    }
  });
  copy(call, call.result(), out);
  return ok_status();
}

Status grid_sampler(KernelCall& call) {
  return call.tensor("input").dtype == DType::f64 ? sample<double>(call) : sample<float>(call);
}

// What one entry of the batch adds to both gradients; `to` may be null.
template <class C>
struct Backward {
  const Sampler<C>& s;
  const double *x, *grad;
  const C* grid;
  double *to, *to_grid;
  int64_t channels;

  void run(int64_t batch, int64_t first) const {
    const Run near = run_of(s, grid, batch, first);
    for (int64_t c = 0; c < channels; ++c) {
      const double* from = grad + (batch * channels + c) * s.places + first;
      double* slopes = to_grid + (batch * s.places + first) * s.axes;
      int64_t plane = (batch * channels + c) * s.plane;
      for (const Neighbours& each : near.places()) {
        const double g = *from++;
        for (const Neighbour& n : each.all()) {
          if (n.at < 0) continue;
          if (to) to[plane + n.at] += g * n.weight;
          for (int j = 0; s.mode != kNearest && j < s.axes; ++j)
            slopes[s.axes - 1 - j] += g * x[plane + n.at] * n.slope[static_cast<size_t>(j)];
        }
        slopes += s.axes;
      }
    }
  }
};

template <class C>
Status sample_backward(KernelCall& call) {
  const Tensor &input = call.tensor("input"), &grad = call.tensor("grad_output"), &grid = call.tensor("grid");
  SG_ASSIGN(Sampler<C> s, sampler_of<C>(call, grad));
  Tensor of_grid = call.scratch().tensor(DType::f64, grid.sizes()), of_input;
  fill(call, of_grid, Scalar::integer(0));
  if (!call.result(0).is_none())
    of_input = call.scratch().tensor(DType::f64, input.sizes()), fill(call, of_input, Scalar::integer(0));
  Backward<C> backward{s,
                       contiguous_as(call, input, DType::f64).as<double>(),
                       contiguous_as(call, grad, DType::f64).as<double>(),
                       contiguous_as(call, grid, kDTypeOf<C>).template as<C>(),
                       of_input.is_none() ? nullptr : of_input.as<double>(),
                       of_grid.as<double>(),
                       input.dim(1)};
  for_rows(call, input.dim(0), s.places * input.dim(1) * 16, [&](int64_t batch, int) {
    for (int64_t at = 0; at < s.places; at += kRun) backward.run(batch, at);
  });
  if (!of_input.is_none()) copy(call, call.result(0), of_input);
  copy(call, call.result(1), of_grid);
  return ok_status();
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
