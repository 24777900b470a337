#include "librun/cpu/pool_channels.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "librun/cpu/indices.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/pool_maxima.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

using work::Span;
using work::Spans;
using work::Window;

constexpr int64_t kChannelsAtOnce = 32;  // more than compilers unroll, so that they vectorize instead

// Calls fn(first, count) for pieces of the channels; the count of a full one is a compile-time constant.
template <class Fn>
SG_INLINE void for_channels(int64_t channels, const Fn& fn) {
  int64_t c = 0;
  for (; c + kChannelsAtOnce <= channels; c += kChannelsAtOnce)
    fn(c, std::integral_constant<int64_t, kChannelsAtOnce>{});
  if (c < channels) fn(c, channels - c);
}

// A row of windows along the last axis, at one position of the first two.
struct WindowRow {
  const Window& w;
  int64_t channels;
  Span deep, high;

  WindowRow(const Window& window, int64_t all, int64_t row)
      : w(window), channels(all), deep(w.span(0, row / w.out[1])), high(w.span(1, row % w.out[1])) {}
  Spans at(int64_t j) const { return {{deep, high, w.span(2, j)}}; }
};

// --- maxima ---

template <class T, class Place>
SG_CLONES void largest_of_row(const WindowRow& row, const T* from, T* values, int64_t* places) {
  const int64_t channels = row.channels;
  for (int64_t j = 0; j < row.w.out[2]; ++j) {
    const Spans spans = row.at(j);
    const int64_t first = (spans.axis[0].from * row.w.in[1] + spans.axis[1].from) * row.w.in[2] + spans.axis[2].from;
    for_channels(channels, [&](int64_t c, auto count) {
      Compute<T> top[kChannelsAtOnce];
      Place where[kChannelsAtOnce];
      for (int64_t l = 0; l < count; ++l) top[l] = -std::numeric_limits<Compute<T>>::infinity();
      for (int64_t l = 0; l < count; ++l) where[l] = static_cast<Place>(first);
      work::for_positions(row.w, spans, [&](int64_t place) {
        const T* x = from + place * channels + c;
        const auto here = static_cast<Place>(place);
        for (int64_t l = 0; l < count; ++l) {
          const Compute<T> value = x[l];
          const bool better = (value > top[l]) | (value != value);
          top[l] = better ? value : top[l];
          where[l] = better ? here : where[l];
        }
      });
      for (int64_t l = 0; l < count; ++l) values[j * channels + c + l] = static_cast<T>(top[l]);
      for (int64_t l = 0; places && l < count; ++l) places[j * channels + c + l] = where[l];
    });
  }
}

template <class T, class Place>
void find_largest(KernelCall& call, const Window& w, int axis) {
  const Tensor x = axis_last(call.tensor("self"), axis);
  const int64_t channels = x.dim(-1), rows = w.out[0] * w.out[1], length = w.out[2] * channels;
  const bool placed = call.result_count() > 1;
  const ResultRows values(call, call.result(0), axis), places(call, call.result(call.result_count() - 1), axis);
  const int64_t work = length * w.kernel[0] * w.kernel[1] * w.kernel[2];
  for_rows(call, w.planes / channels * rows, work, [&](int64_t i, int) {
    largest_of_row<T, Place>({w, channels, i % rows}, x.as<T>() + i / rows * w.plane_in() * channels,
                             values.tensor().as<T>() + i * length,
                             placed ? places.tensor().as<int64_t>() + i * length : nullptr);
  });
  values.store(call);
  if (placed) places.store(call);
}

// --- gradients of maxima ---

constexpr int64_t kSumChannels = 16;  // whose sums over a plane, in double, are to stay in a cache

// Adds gradients of channels [first, first + count) of an entry at their places.
template <class T>
struct PlacedGradients {
  const T* grad;
  const int64_t* places;
  int64_t entry, channels, first, count;

  void add(const Window& w, IndexCheck& check, double* sums) const {
    for (int64_t i = 0, at = entry * w.plane_out() * channels + first; i < w.plane_out(); ++i, at += channels)
      for (int64_t l = 0; l < count; ++l) {
        const int64_t position = (entry * channels + first + l) * w.plane_out() + i;  // in the tensor of indices
        const int64_t place = check.hold(places[at + l], w.plane_in(), position);
        if (place >= 0) sums[place * kSumChannels + l] += static_cast<double>(static_cast<Compute<T>>(grad[at + l]));
      }
  }
};

// Stores the sums, and leaves zeros for the next ones.
template <class T>
SG_CLONES void take_sums(double* sums, int64_t places, int64_t count, int64_t channels, T* to) {
  for (int64_t i = 0; i < places; ++i, sums += kSumChannels, to += channels) {
#pragma GCC ivdep
    for (int64_t l = 0; l < count; ++l) to[l] = static_cast<T>(static_cast<Compute<T>>(sums[l]));
    for (int64_t l = 0; l < kSumChannels; ++l) sums[l] = 0;
  }
}

template <class T>
void add_to_places(KernelCall& call, const Window& w, IndexCheck& check, const Rows& grad, const int64_t* places,
                   T* to) {
  const int64_t channels = grad.length, pieces = (channels + kSumChannels - 1) / kSumChannels;
  auto* sums = call.scratch().take<double>(call.team().size() * w.plane_in() * kSumChannels);
  std::fill_n(sums, call.team().size() * w.plane_in() * kSumChannels, 0.0);
  for_rows(call, w.planes / channels * pieces, w.plane_in() * kSumChannels, [&](int64_t i, int thread) {
    const int64_t entry = i / pieces, first = i % pieces * kSumChannels;
    const int64_t count = std::min(kSumChannels, channels - first);
    double* own = sums + thread * w.plane_in() * kSumChannels;
    PlacedGradients<T>{grad.tensor.as<T>(), places, entry, channels, first, count}.add(w, check, own);
    take_sums(own, w.plane_in(), count, channels, to + entry * w.plane_in() * channels + first);
  });
}

// --- averages ---

int64_t count_of(const Span& s, bool padded) { return padded ? s.padded : s.end - s.from; }

// The divisor of each window of a row is the product of one factor of the row and one of the window (0: it is empty).
struct RowDivisor {
  double row;
  const double* share;
  SG_INLINE double at(int64_t j) const { return row * share[j]; }
};

std::vector<double> shares_of_windows(const Window& w, const Divisor& by) {
  std::vector<double> shares;
  for (int64_t j = 0; j < w.out[2]; ++j) {
    const Span s = w.span(2, j);
    shares.push_back(s.count() == 0 ? 0.0 : static_cast<double>(by.given ? by.value : count_of(s, by.padded)));
  }
  return shares;
}

double share_of_row(const WindowRow& row, const Divisor& by) {
  if (row.deep.count() == 0 || row.high.count() == 0) return 0;
  return static_cast<double>(by.given ? 1 : count_of(row.deep, by.padded) * count_of(row.high, by.padded));
}

template <class T>
SG_CLONES void average_of_row(const WindowRow& row, const RowDivisor& by, const T* from, T* to) {
  const int64_t channels = row.channels;
  for (int64_t j = 0; j < row.w.out[2]; ++j) {
    const Spans spans = row.at(j);
    const double divisor = by.at(j);
    for_channels(channels, [&](int64_t c, auto count) {
      double sum[kChannelsAtOnce];
      for (int64_t l = 0; l < count; ++l) sum[l] = 0;
      work::for_positions(row.w, spans, [&](int64_t place) {
        const T* x = from + place * channels + c;
        for (int64_t l = 0; l < count; ++l) sum[l] += static_cast<double>(static_cast<Compute<T>>(x[l]));
      });
      T* out = to + j * channels + c;
      for (int64_t l = 0; l < count; ++l)
        out[l] = static_cast<T>(static_cast<Compute<T>>(divisor == 0 ? 0.0 : sum[l] / divisor));
    });
  }
}

template <class T>
void find_averages(KernelCall& call, const Window& w, const Divisor& by, int axis) {
  const Tensor x = axis_last(call.tensor("self"), axis);
  const int64_t channels = x.dim(-1), rows = w.out[0] * w.out[1], length = w.out[2] * channels;
  const ResultRows means(call, call.result(), axis);
  const std::vector<double> shares = shares_of_windows(w, by);
  const int64_t work = length * w.kernel[0] * w.kernel[1] * w.kernel[2];
  for_rows(call, w.planes / channels * rows, work, [&](int64_t i, int) {
    const WindowRow row(w, channels, i % rows);
    average_of_row(row, {share_of_row(row, by), shares.data()}, x.as<T>() + i / rows * w.plane_in() * channels,
                   means.tensor().as<T>() + i * length);
  });
  means.store(call);
}

// Adds what a row of windows gives to one of its lines: the first window that contains an element has it as its last
// one, so that contributions come in the order of windows.
template <class T>
SG_CLONES void spread_row(const WindowRow& row, const RowDivisor& by, const T* grad, double* shares, double* line) {
  const Window& w = row.w;
  const int64_t channels = row.channels;
  for (int64_t j = 0; j < w.out[2]; ++j) {
    const double divisor = by.at(j);
    const T* from = grad + j * channels;
    for (int64_t c = 0; c < channels; ++c)
      shares[j * channels + c] = divisor == 0 ? 0.0 : static_cast<double>(static_cast<Compute<T>>(from[c])) / divisor;
  }
  for (int64_t k = w.kernel[2] - 1; k >= 0; --k)
    for (int64_t j = 0; j < w.out[2]; ++j) {
      const int64_t at = j * w.stride[2] - w.padding[2] + k * w.dilation[2];
      if (at < 0 || at >= w.in[2]) continue;
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c) line[at * channels + c] += shares[j * channels + c];
    }
}

bool contains(const Span& s, int64_t at) { return at >= s.from && at < s.end && (at - s.from) % s.step == 0; }

// Calls fn(row of windows) for those that contain line (d, r) of the plane, in order.
template <class Fn>
void for_rows_over(const Window& w, int64_t channels, int64_t d, int64_t r, const Fn& fn) {
  int64_t first[2], end[2];
  w.windows_over(0, d, first, end);
  w.windows_over(1, r, first + 1, end + 1);
  for (int64_t a = first[0]; a < end[0]; ++a)
    for (int64_t b = first[1]; b < end[1]; ++b) {
      const WindowRow row(w, channels, a * w.out[1] + b);
      if (contains(row.deep, d) && contains(row.high, r)) fn(row, a * w.out[1] + b);
    }
}

template <class T>
void spread_all(KernelCall& call, const Window& w, const Divisor& by, int axis) {
  const Rows grad = rows_of(call, call.tensor("grad_output"), axis);
  const ResultRows sums(call, call.result(), axis);
  const int64_t channels = grad.length, lines = w.in[0] * w.in[1], length = w.out[2] * channels;
  const RowWriter<double> to(call, sums.tensor(), w.in[2] * channels);
  const std::vector<double> shares = shares_of_windows(w, by);
  auto* parts = call.scratch().take<double>(length * call.team().size());
  for_rows(call, w.planes / channels * lines, (w.in[2] + w.out[2]) * channels, [&](int64_t i, int thread) {
    const T* from = grad.tensor.as<T>() + i / lines * w.plane_out() * channels;
    double* line = to.row(i, thread);
    std::fill_n(line, w.in[2] * channels, 0.0);
    for_rows_over(w, channels, i % lines / w.in[1], i % w.in[1], [&](const WindowRow& row, int64_t at) {
      spread_row(row, {share_of_row(row, by), shares.data()}, from + at * length, parts + thread * length, line);
    });
    to.done(i, thread);
  });
  sums.store(call);
}

}  // namespace

void largest_by_channels(KernelCall& call, const Window& w, int axis) {
  visit_floating(call.tensor("self").dtype, [&]<class T>() {
    constexpr bool wide = std::is_same_v<T, double>;  // 32-bit positions keep up with floats
    if (wide || !has_short_places(w)) find_largest<T, int64_t>(call, w, axis);
    else if constexpr (!wide) find_largest<T, int32_t>(call, w, axis);
  });
}

Status add_to_places_by_channels(KernelCall& call, const Window& w, int axis) {
  const Tensor& indices = call.tensor("indices");
  const Rows grad = rows_of(call, call.tensor("grad_output"), axis), places = rows_of(call, indices, axis, DType::i64);
  const ResultRows sums(call, call.result(), axis);
  IndexCheck check;
  visit_floating(grad.tensor.dtype, [&]<class T>() {
    add_to_places(call, w, check, grad, places.tensor.as<int64_t>(), sums.tensor().as<T>());
  });
  if (!check.ok()) return check.status(call, contiguous_as(call, indices, DType::i64).as<int64_t>(), w.plane_in());
  return sums.store(call), ok_status();
}

void average_by_channels(KernelCall& call, const Window& w, const Divisor& by, int axis) {
  visit_floating(call.tensor("self").dtype, [&]<class T>() { find_averages<T>(call, w, by, axis); });
}

void spread_by_channels(KernelCall& call, const Window& w, const Divisor& by, int axis) {
  visit_floating(call.tensor("grad_output").dtype, [&]<class T>() { spread_all<T>(call, w, by, axis); });
}

}  // namespace sg::cpu
