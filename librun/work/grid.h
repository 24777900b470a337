// Samples of planes at fractional positions, given by a grid: the contributing pixels, their weights, and the results.
// Values are summed in double.
//
// Positions are computed in the element type (half precision: float), as in PyTorch, because rounding decides which
// pixels are neighbours and whether a position is outside. Weights are doubles.
#pragma once

#include "librun/work/math.h"
#include "librun/work/work.h"

namespace sg::work::grid {

enum Mode : int64_t { kLinear = 0, kNearest = 1, kCubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

template <class C>
struct Sampler {
  int axes = 2;
  int64_t mode = 0, padding = 0;
  bool aligned = false;
  int64_t size[3] = {1, 1, 1};    // of a plane, by axis of the input
  int64_t plane = 1, places = 1;  // elements of a plane; grid positions per batch entry
};

// A pixel for each of up to kRun adjacent samples: its offset (-1: outside), its weight, and the weight's derivative
// along each axis. Loops over samples are vectorized.
template <int kRun>
struct Neighbour {
  int64_t at[kRun];
  double weight[kRun], slope[3][kRun];
};

// Up to 16 pixels: 2 or 4 per axis.
template <int kRun>
struct Neighbours {
  Neighbour<kRun> list[16];
  int count;
};

// --- steps ---

SG_INLINE float floor_of(float x) { return __builtin_floorf(x); }
SG_INLINE double floor_of(double x) { return __builtin_floor(x); }
SG_INLINE float nearest_to(float x) { return __builtin_nearbyintf(x); }
SG_INLINE double nearest_to(double x) { return __builtin_nearbyint(x); }
SG_INLINE float remainder_of(float a, float b) { return ::fmodf(a, b); }
SG_INLINE double remainder_of(double a, double b) { return ::fmod(a, b); }

template <class C, int kRun>
struct Pixels {
  C at[kRun];
  C slope[kRun];  // derivative of `at` with respect to the grid's number
};

// Converts grid numbers, `step` apart, to positions along an axis of n pixels.
template <class C, int kRun>
SG_INLINE void find_pixels(const Sampler<C>& s, const C* grid, int64_t step, int64_t count, int64_t n,
                           Pixels<C, kRun>* to) {
  const C slope = s.aligned ? static_cast<C>(n - 1) / 2 : static_cast<C>(n) / 2;
  for (int64_t p = 0; p < count; ++p) {
    const C x = grid[p * step];
    to->at[p] = s.aligned ? ((x + 1) / 2) * static_cast<C>(n - 1) : ((x + 1) * static_cast<C>(n) - 1) / 2;
    to->slope[p] = slope;
  }
}

template <class C>
SG_INLINE void reflect(C* at, C* slope, bool aligned, int64_t n) {
  const int64_t twice_low = aligned ? 0 : -1, twice_high = aligned ? 2 * (n - 1) : 2 * n - 1;
  if (twice_low == twice_high) return void(*at = *slope = 0);
  const C low = static_cast<C>(twice_low) / 2, span = static_cast<C>(twice_high - twice_low) / 2;
  C x = *at - low;
  if (x < 0) x = -x, *slope = -*slope;
  const C extra = remainder_of(x, span), flips = floor_of(x / span);
  const bool even = remainder_of(flips, C(2)) == 0;
  *at = even ? extra + low : span - extra + low;
  if (!even) *slope = -*slope;
}

// Applies the padding mode to positions outside the plane.
template <class C, int kRun>
SG_INLINE void pad_pixels(const Sampler<C>& s, int64_t count, int64_t n, Pixels<C, kRun>* to) {
  if (s.padding == kZeros) return;
  if (s.padding == kReflection)
    for (int64_t p = 0; p < count; ++p) reflect(to->at + p, to->slope + p, s.aligned, n);
  const C most = static_cast<C>(n - 1);
  for (int64_t p = 0; p < count; ++p) {
    const C at = to->at[p];
    const bool inside = at > 0 && at < most;  // false for NaN
    to->slope[p] = inside ? to->slope[p] : 0;
    to->at[p] = at > 0 ? (at < most ? at : most) : 0;
  }
}

// Along one axis: pixel numbers, weights and derivatives.
template <int kRun>
struct Tap {
  int64_t at[kRun];
  double weight[kRun], slope[kRun];
};

template <int kRun>
struct AxisTaps {
  Tap<kRun> tap[4];
  int count;
};

constexpr double kFar = 1e15;  // exceeds any plane

template <class C>
SG_INLINE int64_t pixel(C x) {
  return math::abs(x) < C(kFar) ? static_cast<int64_t>(x) : -1;
}

struct CubicWeight {
  double weight, slope;
};

// For neighbour k of four, at distance `t` from the second towards the third.
SG_INLINE CubicWeight cubic_weight(double t, int k) {
  constexpr double a = -0.75;
  const double x = math::abs(k - 1 - t), sign = k - 1 - t < 0 ? 1 : -1;  // sign: derivative of the distance by t
  const bool near = x < 1 || (x == 1 && (k == 1 || k == 2));
  const double slope = near ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a;
  return {near ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, sign * slope};
}

template <class C, int kRun>
SG_INLINE void nearest_taps(const Pixels<C, kRun>& pixels, int64_t count, AxisTaps<kRun>* taps) {
  taps->count = 1;
  for (int64_t p = 0; p < count; ++p) {
    taps->tap[0].at[p] = pixel(nearest_to(pixels.at[p]));
    taps->tap[0].weight[p] = 1, taps->tap[0].slope[p] = 0;
  }
}

template <class C, int kRun>
SG_INLINE void linear_taps(const Pixels<C, kRun>& pixels, int64_t count, AxisTaps<kRun>* taps) {
  Tap<kRun>&first = taps->tap[0], &second = taps->tap[1];
  taps->count = 2;
  for (int64_t p = 0; p < count; ++p) {
    const C low = floor_of(pixels.at[p]);
    const auto share = static_cast<double>(pixels.at[p] - low), slope = static_cast<double>(pixels.slope[p]);
    first.at[p] = pixel(low);
    second.at[p] = math::abs(low) < C(kFar) ? pixel(low) + 1 : -1;
    first.weight[p] = 1 - share, second.weight[p] = share;
    first.slope[p] = -slope, second.slope[p] = slope;
  }
}

template <class C, int kRun>
SG_INLINE void cubic_taps(const Sampler<C>& s, const Pixels<C, kRun>& pixels, int64_t count, int64_t n,
                          AxisTaps<kRun>* taps) {
  taps->count = 4;
  for (int k = 0; k < 4; ++k) {
    Tap<kRun>& tap = taps->tap[k];
    Pixels<C, kRun> each;  // padded separately
    for (int64_t p = 0; p < count; ++p) {
      const C low = floor_of(pixels.at[p]);
      const CubicWeight w = cubic_weight(static_cast<double>(pixels.at[p] - low), k);
      tap.weight[p] = w.weight;
      tap.slope[p] = w.slope * static_cast<double>(pixels.slope[p]);
      each.at[p] = low + static_cast<C>(k - 1), each.slope[p] = 0;
    }
    pad_pixels(s, count, n, &each);
    for (int64_t p = 0; p < count; ++p) tap.at[p] = pixel(each.at[p]);
  }
}

template <class C, int kRun>
SG_INLINE void find_taps(const Sampler<C>& s, const C* grid, int64_t count, int64_t n, AxisTaps<kRun>* taps) {
  Pixels<C, kRun> pixels;
  find_pixels(s, grid, s.axes, count, n, &pixels);
  if (s.mode == kCubic) return cubic_taps(s, pixels, count, n, taps);
  pad_pixels(s, count, n, &pixels);
  s.mode == kNearest ? nearest_taps(pixels, count, taps) : linear_taps(pixels, count, taps);
}

// Combines the pixels of later axes with each tap of `axis`. `step`: distance between adjacent pixels along it.
// `slopes`: number of axes whose derivatives are wanted.
template <int kRun>
SG_INLINE void add_axis(const AxisTaps<kRun>& taps, int axis, int slopes, int64_t size, int64_t step, int64_t count,
                        Neighbours<kRun>* near) {
  for (int i = taps.count; i-- > 0;) {
    const Tap<kRun>& tap = taps.tap[i];
    for (int j = 0; j < near->count; ++j) {
      const Neighbour<kRun>& from = near->list[j];
      Neighbour<kRun>& to = near->list[i * near->count + j];
      for (int64_t p = 0; p < count; ++p) {
        const bool inside = from.at[p] >= 0 && tap.at[p] >= 0 && tap.at[p] < size;
        to.at[p] = inside ? from.at[p] + tap.at[p] * step : -1;
        to.weight[p] = from.weight[p] * tap.weight[p];
      }
      for (int k = 0; k < slopes; ++k)
        for (int64_t p = 0; p < count; ++p)
          to.slope[k][p] = from.slope[k][p] * (k == axis ? tap.slope[p] : tap.weight[p]);
    }
  }
  near->count *= taps.count;
}

// `grid`: the numbers of `count` positions, x (the last axis) first. `slopes`: whether derivatives along the sampler's
// axes are wanted.
template <class C, int kRun>
SG_INLINE void find_neighbours(const Sampler<C>& s, const C* grid, int64_t count, bool slopes, Neighbours<kRun>* near) {
  Neighbour<kRun>& whole = near->list[0];
  near->count = 1;
  for (int p = 0; p < kRun; ++p) {
    whole.at[p] = 0, whole.weight[p] = 1;
    for (int k = 0; slopes && k < s.axes; ++k) whole.slope[k][p] = 1;
  }
  int64_t step = 1;
  for (int axis = s.axes - 1; axis >= 0; --axis) {
    AxisTaps<kRun> taps;
    find_taps(s, grid + s.axes - 1 - axis, count, s.size[axis], &taps);
    add_axis(taps, axis, slopes ? s.axes : 0, s.size[axis], step, count, near);
    step *= s.size[axis];
  }
}

constexpr int64_t kDotLanes = 8;

template <class C>
SG_INLINE double dot(const C* a, const C* b, int64_t n) {
  double lane[kDotLanes] = {};
  int64_t i = 0;
  for (; i + kDotLanes <= n; i += kDotLanes)
    for (int64_t l = 0; l < kDotLanes; ++l) lane[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
  for (int64_t l = 0; i < n; ++i, ++l) lane[l] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

// --- by element: channels are innermost, in planes and samples ---

template <class C>
struct Samples {
  Sampler<C> sampler;
  const C *points, *planes;
  int64_t channels;

  SG_INLINE void find(int64_t place, Neighbours<1>* near) const {
    find_neighbours(sampler, points + place * sampler.axes, 1, true, near);
  }
  SG_INLINE int64_t row(int64_t batch, int64_t pixel) const { return (batch * sampler.plane + pixel) * channels; }
};

// Computes one channel of one sample.
template <class C>
struct Sample {
  static constexpr const char* kName = sizeof(C) == 8 ? "work_sample_f64" : "work_sample";
  Samples<C> samples;
  C* to;
  SG_INLINE void operator()(int64_t i) const {
    const int64_t place = i / samples.channels, c = i % samples.channels;
    Neighbours<1> near;
    samples.find(place, &near);
    double sum = 0;
    for (int k = 0; k < near.count; ++k) {
      const Neighbour<1>& n = near.list[k];
      if (n.at[0] < 0) continue;
      const int64_t row = samples.row(place / samples.sampler.places, n.at[0]);
      sum += static_cast<double>(samples.planes[row + c]) * n.weight[0];
    }
    to[i] = static_cast<C>(sum);
  }
};

// Computes the gradient of a grid position.
template <class C>
struct GridSlope {
  static constexpr const char* kName = sizeof(C) == 8 ? "work_grid_slope_f64" : "work_grid_slope";
  Samples<C> samples;
  const C* grad;
  double* to;
  SG_INLINE void operator()(int64_t place) const {
    const int axes = samples.sampler.axes;
    Neighbours<1> near;
    samples.find(place, &near);
    double along[3] = {};
    for (int k = 0; k < near.count && samples.sampler.mode != kNearest; ++k) {
      const Neighbour<1>& n = near.list[k];
      if (n.at[0] < 0) continue;
      const int64_t row = samples.row(place / samples.sampler.places, n.at[0]);
      const double change = dot(grad + place * samples.channels, samples.planes + row, samples.channels);
      for (int axis = 0; axis < axes; ++axis) along[axis] += change * n.slope[axis][0];
    }
    for (int axis = 0; axis < axes; ++axis) to[place * axes + axes - 1 - axis] = along[axis];
  }
};

// Adds the contributions of all samples, in order, to one channel of a batch entry's plane.
template <class C>
struct PlaneSlope {
  static constexpr const char* kName = sizeof(C) == 8 ? "work_plane_slope_f64" : "work_plane_slope";
  Samples<C> samples;
  const C* grad;
  double* to;  // initially zeros
  SG_INLINE void operator()(int64_t i) const {
    const int64_t batch = i / samples.channels, c = i % samples.channels, places = samples.sampler.places;
    for (int64_t place = batch * places; place < (batch + 1) * places; ++place) {
      Neighbours<1> near;
      samples.find(place, &near);
      const double g = static_cast<double>(grad[place * samples.channels + c]);
      for (int k = 0; k < near.count; ++k)
        if (near.list[k].at[0] >= 0) to[samples.row(batch, near.list[k].at[0]) + c] += g * near.list[k].weight[0];
    }
  }
};

}  // namespace sg::work::grid
