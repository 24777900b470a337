#include "librun/cpu/grid_neighbours.h"

#include <algorithm>
#include <cmath>

#include "librun/cpu/isa.h"

namespace sg::cpu::grid {
namespace {

template <class C>
struct Pixels {
  C at[kRun];
  C slope[kRun];  // of `at` by the grid's number
};

// Numbers of the grid, `step` apart, as pixels of an axis of n.
template <class C>
SG_INLINE void find_pixels(const Sampler<C>& s, const C* grid, int64_t step, int64_t count, int64_t n, Pixels<C>* to) {
  const C slope = s.aligned ? static_cast<C>(n - 1) / 2 : static_cast<C>(n) / 2;
  for (int64_t p = 0; p < count; ++p) {
    const C x = grid[p * step];
    to->at[p] = s.aligned ? ((x + 1) / 2) * static_cast<C>(n - 1) : ((x + 1) * static_cast<C>(n) - 1) / 2;
    to->slope[p] = slope;
  }
}

template <class C>
void reflect(C* at, C* slope, bool aligned, int64_t n) {
  const int64_t twice_low = aligned ? 0 : -1, twice_high = aligned ? 2 * (n - 1) : 2 * n - 1;
  if (twice_low == twice_high) return void(*at = *slope = 0);
  const C low = static_cast<C>(twice_low) / 2, span = static_cast<C>(twice_high - twice_low) / 2;
  C x = *at - low;
  if (x < 0) x = -x, *slope = -*slope;
  const C extra = std::fmod(x, span), flips = std::floor(x / span);
  const bool even = std::fmod(flips, C(2)) == 0;
  *at = even ? extra + low : span - extra + low;
  if (!even) *slope = -*slope;
}

// Pixels beyond the plane, as the padding has them.
template <class C>
SG_INLINE void pad_pixels(const Sampler<C>& s, int64_t count, int64_t n, Pixels<C>* to) {
  if (s.padding == kZeros) return;
  if (s.padding == kReflection)
    for (int64_t p = 0; p < count; ++p) reflect(to->at + p, to->slope + p, s.aligned, n);
  const C most = static_cast<C>(n - 1);
  for (int64_t p = 0; p < count; ++p) {
    const C at = to->at[p];
    const bool inside = at > 0 && at < most;  // NaN is not
    to->slope[p] = inside ? to->slope[p] : 0;
    to->at[p] = at > 0 ? (at < most ? at : most) : 0;
  }
}

// Along one axis: pixel numbers, weights and slopes.
struct Tap {
  int64_t at[kRun];
  double weight[kRun], slope[kRun];
};

struct AxisTaps {
  Tap tap[4];
  size_t count;
};

constexpr double kFar = 1e15;  // no plane is as large

template <class C>
SG_INLINE int64_t pixel(C x) {
  return std::abs(x) < C(kFar) ? static_cast<int64_t>(x) : -1;
}

struct CubicWeight {
  double weight, slope;
};

// Of neighbour k of four, `t` from the second to the third.
SG_INLINE CubicWeight cubic_weight(double t, int k) {
  constexpr double a = -0.75;
  const double x = std::abs(k - 1 - t), sign = k - 1 - t < 0 ? 1 : -1;  // of the distance by t
  const bool near = x < 1 || (x == 1 && (k == 1 || k == 2));
  const double slope = near ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a;
  return {near ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, sign * slope};
}

template <class C>
SG_INLINE void nearest_taps(const Pixels<C>& pixels, int64_t count, AxisTaps* taps) {
  taps->count = 1;
  for (int64_t p = 0; p < count; ++p) {
    taps->tap[0].at[p] = pixel(std::nearbyint(pixels.at[p]));
    taps->tap[0].weight[p] = 1, taps->tap[0].slope[p] = 0;
  }
}

template <class C>
SG_INLINE void linear_taps(const Pixels<C>& pixels, int64_t count, AxisTaps* taps) {
  Tap &first = taps->tap[0], &second = taps->tap[1];
  taps->count = 2;
  for (int64_t p = 0; p < count; ++p) {
    const C low = std::floor(pixels.at[p]);
    const auto share = static_cast<double>(pixels.at[p] - low), slope = static_cast<double>(pixels.slope[p]);
    first.at[p] = pixel(low);
    second.at[p] = std::abs(low) < C(kFar) ? pixel(low) + 1 : -1;
    first.weight[p] = 1 - share, second.weight[p] = share;
    first.slope[p] = -slope, second.slope[p] = slope;
  }
}

template <class C>
SG_INLINE void cubic_taps(const Sampler<C>& s, const Pixels<C>& pixels, int64_t count, int64_t n, AxisTaps* taps) {
  taps->count = 4;
  for (int k = 0; k < 4; ++k) {
    Tap& tap = taps->tap[k];
    Pixels<C> each;  // is padded by itself
    for (int64_t p = 0; p < count; ++p) {
      const C low = std::floor(pixels.at[p]);
      const CubicWeight w = cubic_weight(static_cast<double>(pixels.at[p] - low), k);
      tap.weight[p] = w.weight;
      tap.slope[p] = w.slope * static_cast<double>(pixels.slope[p]);
      each.at[p] = low + static_cast<C>(k - 1), each.slope[p] = 0;
    }
    pad_pixels(s, count, n, &each);
    for (int64_t p = 0; p < count; ++p) tap.at[p] = pixel(each.at[p]);
  }
}

template <class C>
SG_CLONES void find_taps(const Sampler<C>& s, const C* grid, int64_t count, int64_t n, AxisTaps* taps) {
  Pixels<C> pixels;
  find_pixels(s, grid, s.axes, count, n, &pixels);
  if (s.mode == kCubic) return cubic_taps(s, pixels, count, n, taps);
  pad_pixels(s, count, n, &pixels);
  s.mode == kNearest ? nearest_taps(pixels, count, taps) : linear_taps(pixels, count, taps);
}

// What there is of the axes behind `axis`, for each of its taps. `step`: from one of its pixels to the next.
SG_CLONES void add_axis(const AxisTaps& taps, size_t axis, int64_t size, int64_t step, int64_t count,
                        Neighbours* near) {
  for (size_t i = taps.count; i-- > 0;) {
    const Tap& tap = taps.tap[i];
    for (size_t j = 0; j < near->count; ++j) {
      const Neighbour& from = near->list[j];
      Neighbour& to = near->list[i * near->count + j];
      for (int64_t p = 0; p < count; ++p) {
        const bool inside = from.at[p] >= 0 && tap.at[p] >= 0 && tap.at[p] < size;
        to.at[p] = inside ? from.at[p] + tap.at[p] * step : -1;
        to.weight[p] = from.weight[p] * tap.weight[p];
      }
      for (size_t k = 0; k < 3; ++k)
        for (int64_t p = 0; p < count; ++p)
          to.slope[k][p] = from.slope[k][p] * (k == axis ? tap.slope[p] : tap.weight[p]);
    }
  }
  near->count *= taps.count;
}

}  // namespace

template <class C>
void find_neighbours(const Sampler<C>& s, const C* grid, int64_t count, Neighbours* near) {
  Neighbour& whole = near->list[0];
  near->count = 1;
  std::fill_n(whole.at, kRun, 0);
  std::fill_n(whole.weight, kRun, 1.0);
  std::fill_n(whole.slope[0], 3 * kRun, 1.0);
  int64_t step = 1;
  for (int k = s.axes - 1; k >= 0; --k) {
    const auto axis = static_cast<size_t>(k);
    AxisTaps taps;
    find_taps(s, grid + s.axes - 1 - k, count, s.size[axis], &taps);
    add_axis(taps, axis, s.size[axis], step, count, near);
    step *= s.size[axis];
  }
}

template void find_neighbours(const Sampler<float>&, const float*, int64_t, Neighbours*);
template void find_neighbours(const Sampler<double>&, const double*, int64_t, Neighbours*);

}  // namespace sg::cpu::grid
