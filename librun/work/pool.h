// Pooling: windows over planes with up to three axes, and the work of one window or of one input element.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

// The positions of one window along one axis: from, from + step, ... below `end`, excluding padding.
struct Span {
  int64_t from, end, step;
  int64_t padded;  // number of positions including padding, for averages

  SG_INLINE int64_t count() const { return from < end ? (end - from + step - 1) / step : 0; }
};

// By depth, height and width; missing axes have size 1.
struct Window {
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t planes = 1;

  SG_INLINE int64_t plane_in() const { return in[0] * in[1] * in[2]; }
  SG_INLINE int64_t plane_out() const { return out[0] * out[1] * out[2]; }

  SG_INLINE Span span(int k, int64_t at) const {
    const int64_t start = at * stride[k] - padding[k], limit = in[k] + padding[k];
    int64_t end = start + (kernel[k] - 1) * dilation[k] + 1;
    if (end > limit) end = limit;
    Span s{start, end < in[k] ? end : in[k], dilation[k], end - start};
    if (start < 0) s.from += (-start + s.step - 1) / s.step * s.step;
    return s;
  }
  // Window i of n covers [floor(i size / n), ceil((i + 1) size / n)).
  SG_INLINE Span adaptive_span(int k, int64_t at) const {
    const int64_t n = out[k], size = in[k];
    const int64_t from = at / n * size + at % n * size / n, end = 1 + ((at + 1) * size - 1) / n;
    return {from, end, 1, end - from};
  }
  // The windows that contain `at`: the first, and one past the last.
  SG_INLINE void windows_over(int k, int64_t at, int64_t* first, int64_t* end) const {
    const int64_t reach = (kernel[k] - 1) * dilation[k], place = at + padding[k];
    *first = place <= reach ? 0 : (place - reach + stride[k] - 1) / stride[k];
    *end = place / stride[k] + 1 < out[k] ? place / stride[k] + 1 : out[k];
  }
};

struct Spans {
  Span axis[3];
};

// Calls fn(offset in the plane) for every position of a window.
template <class Fn>
SG_INLINE void for_positions(const Window& w, const Spans& s, const Fn& fn) {
  for (int64_t d = s.axis[0].from; d < s.axis[0].end; d += s.axis[0].step)
    for (int64_t r = s.axis[1].from; r < s.axis[1].end; r += s.axis[1].step)
      for (int64_t c = s.axis[2].from; c < s.axis[2].end; c += s.axis[2].step) fn((d * w.in[1] + r) * w.in[2] + c);
}

// The spans of output `i` of [planes, out...].
SG_INLINE Spans spans_at(const Window& w, int64_t i, bool adaptive) {
  Spans s;
  for (int k = 2; k >= 0; --k) {
    s.axis[k] = adaptive ? w.adaptive_span(k, i % w.out[k]) : w.span(k, i % w.out[k]);
    i /= w.out[k];
  }
  return s;
}

// The maximum of a window, and its offset. NaN wins; of several NaNs, the last.
template <class T>
SG_INLINE void largest_in(const Window& w, const Spans& s, const T* from, T lowest, T* value, int64_t* at) {
  T top = lowest;
  int64_t where = (s.axis[0].from * w.in[1] + s.axis[1].from) * w.in[2] + s.axis[2].from;
  for_positions(w, s, [&](int64_t place) {
    if (from[place] > top || from[place] != from[place]) top = from[place], where = place;
  });
  *value = top;
  *at = where;
}

template <class T>
struct MaxPool {
  static constexpr const char* kName = sizeof(T) == 8 && T(1) / T(2) != 0 ? "work_max_pool" : "work_max_pool_whole";
  Window w;
  bool adaptive;
  T lowest;
  const T* from;
  T* values;
  int64_t* places;

  SG_INLINE void operator()(int64_t i) const {
    largest_in(w, spans_at(w, i, adaptive), from + i / w.plane_out() * w.plane_in(), lowest, values + i, places + i);
  }
};

// The divisor of the sum over a window.
SG_INLINE int64_t divisor_of(const Spans& s, bool has_divisor, int64_t divisor, bool padded) {
  if (has_divisor) return divisor;
  int64_t count = 1;
  for (int k = 0; k < 3; ++k) count *= padded ? s.axis[k].padded : s.axis[k].end - s.axis[k].from;
  return count;
}
SG_INLINE bool is_empty(const Spans& s) {
  return s.axis[0].from >= s.axis[0].end || s.axis[1].from >= s.axis[1].end || s.axis[2].from >= s.axis[2].end;
}

template <class T>
struct AvgPool {
  static constexpr const char* kName = sizeof(T) == 8 && T(1) / T(2) != 0 ? "work_avg_pool" : "work_avg_pool_whole";
  Window w;
  bool has_divisor, padded;
  int64_t divisor;
  const T* from;
  T* to;

  SG_INLINE void operator()(int64_t i) const {
    const Spans s = spans_at(w, i, false);
    const T* plane = from + i / w.plane_out() * w.plane_in();
    T sum{}, by = static_cast<T>(divisor_of(s, has_divisor, divisor, padded));
    for_positions(w, s, [&](int64_t place) { sum += plane[place]; });
    to[i] = is_empty(s) || by == 0 ? T{} : sum / by;
  }
};

// The gradient of input element i, over all windows that contain it, in order: its share of averages (`places` null),
// or of maxima that it was.
struct PoolBackward {
  static constexpr const char* kName = "work_pool_backward";
  Window w;
  bool has_divisor, padded;
  int64_t divisor;
  const double* grad;
  const int64_t* places;
  double* to;

  SG_INLINE void operator()(int64_t i) const {
    const int64_t place = i % w.plane_in(), plane = i / w.plane_in();
    int64_t rest = place, at[3], first[3], end[3];
    for (int k = 2; k >= 0; --k) {
      at[k] = rest % w.in[k];
      rest /= w.in[k];
      w.windows_over(k, at[k], first + k, end + k);
    }
    double sum = 0;
    for (int64_t d = first[0]; d < end[0]; ++d)
      for (int64_t r = first[1]; r < end[1]; ++r)
        for (int64_t c = first[2]; c < end[2]; ++c) {
          const int64_t out = plane * w.plane_out() + (d * w.out[1] + r) * w.out[2] + c;
          if (places) {
            if (places[out] == place) sum += grad[out];
            continue;
          }
          const Spans s{{w.span(0, d), w.span(1, r), w.span(2, c)}};
          bool inside = true;
          for (int k = 0; k < 3; ++k)
            inside = inside && at[k] >= s.axis[k].from && (at[k] - s.axis[k].from) % s.axis[k].step == 0;
          if (inside) sum += grad[out] / static_cast<double>(divisor_of(s, has_divisor, divisor, padded));
        }
    to[i] = sum;
  }
};

// Scatters values to offsets in their plane: doubles are added, other elements are moved, the last one winning. Each
// index handles one plane.
struct ToPlaces {
  static constexpr const char* kName = "work_to_places";
  int64_t plane_in, plane_out, size;  // size: bytes of a moved element; 0 = doubles are added
  const unsigned char* from;
  const int64_t* places;
  unsigned char* to;
  Report report;

  SG_INLINE void operator()(int64_t plane) const {
    for (int64_t i = plane * plane_out; i < (plane + 1) * plane_out; ++i) {
      if (places[i] < 0 || places[i] >= plane_in) {
        report.raise(Fault::Kind::index, places[i], plane_in);
        continue;
      }
      const int64_t at = plane * plane_in + places[i];
      if (size == 0) reinterpret_cast<double*>(to)[at] += reinterpret_cast<const double*>(from)[i];
      else
        for (int64_t b = 0; b < size; ++b) to[at * size + b] = from[i * size + b];
    }
  }
};

// Raises a fault if an index is out of range.
struct CheckRange {
  static constexpr const char* kName = "work_check_range";
  const int64_t* index;
  int64_t size;
  Report report;
  SG_INLINE void operator()(int64_t i) const {
    if (index[i] < 0 || index[i] >= size) report.raise(Fault::Kind::index, index[i], size);
  }
};

}  // namespace sg::work
