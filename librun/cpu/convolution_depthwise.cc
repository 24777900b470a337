#include "librun/cpu/convolution_depthwise.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "librun/cpu/isa.h"
#include "librun/cpu/rows.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kMostOutputs = 4;  // of a group; with more of them a product of matrices pays
constexpr int64_t kShortLine = 32;   // places of a line from which on a pass a line is as quick as one over all of them
constexpr int64_t kMostBetween = 8;  // elements between lines that it pays to compute for nothing
constexpr int64_t kTogether = 4096;  // elements of padded planes, of several entries, that a pass runs over
constexpr int64_t kLongLine = 64;    // elements whose sums of weights' gradients are made side by side

// What windows see of an axis, padding and all.
int64_t reach(const ConvolutionGeometry& g, size_t d) {
  return (g.out[d] - 1) * g.stride[d] + (g.window[d] - 1) * g.dilation[d] + 1;
}

// Rows of one plane, `step` elements from one to the next.
template <class T>
struct Lines {
  T* data;
  int64_t step;
};

// to += from * by
template <class T>
SG_CLONES void add_scaled(Lines<const T> from, T by, int64_t rows, int64_t length, Lines<T> to) {
  for (int64_t r = 0; r < rows; ++r, from.data += from.step, to.data += to.step) {
#pragma GCC ivdep
    for (int64_t i = 0; i < length; ++i) to.data[i] += from.data[i] * by;
  }
}

// to[i] += a * b, summed over the rows
template <class T>
SG_CLONES void add_products(Lines<const T> a, Lines<const T> b, int64_t rows, int64_t length, T* to) {
  for (int64_t r = 0; r < rows; ++r, a.data += a.step, b.data += b.step) {
#pragma GCC ivdep
    for (int64_t i = 0; i < length; ++i) to[i] += a.data[i] * b.data[i];
  }
}

// Elements of an image, `step` apart, from or to memory of T.
template <class T>
void read_run(const Image& image, int64_t at, int64_t step, int64_t count, T* to) {
  visit_floating(image.dtype, [&]<class From>() {
    const From* from = reinterpret_cast<const From*>(image.data) + at;
    if constexpr (std::is_same_v<From, T>)
      if (step == 1) return void(std::copy_n(from, count, to));
    if (step == 1)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<Compute<From>>(from[i]));
    else
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<Compute<From>>(from[i * step]));
  });
}

template <class T>
void write_run(const T* from, const Image& image, int64_t at, int64_t step, int64_t count) {
  visit_floating(image.dtype, [&]<class To>() {
    To* to = reinterpret_cast<To*>(const_cast<std::byte*>(image.data)) + at;
    if constexpr (std::is_same_v<To, T>)
      if (step == 1) return void(std::copy_n(from, count, to));
    if (step == 1)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<Compute<To>>(from[i]));
    else
      for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<To>(static_cast<Compute<To>>(from[i]));
  });
}

int64_t line_of(const Image& image, int64_t entry, int64_t channel, int64_t d, int64_t h) {
  return entry * image.batch_step + channel * image.channel_step + d * image.step[0] + h * image.step[1];
}

}  // namespace

bool is_depthwise(const KernelCall& call, const ConvolutionGeometry& g) {
  if (call.numerics() == Numerics::strict || g.in_channels != 1 || g.out_channels > kMostOutputs) return false;
  for (size_t d = 0; d < 3; ++d)
    if (g.in[d] == 0 || g.out[d] == 0 || reach(g, d) / 4 > g.in[d]) return false;
  return true;
}

template <class T>
Depthwise<T>::Depthwise(KernelCall& call, const ConvolutionGeometry& g) : call_(call), g_(g) {
  for (size_t d = 0; d < 3; ++d) {
    split_[d] = std::min(g.stride[d], reach(g, d));
    part_[d] = (reach(g, d) + split_[d] - 1) / split_[d];
  }
  plane_ = part_[0] * part_[1] * part_[2];
  parts_ = split_[0] * split_[1] * split_[2];
  one_run_ = g.out[2] < kShortLine && part_[2] - g.out[2] <= kMostBetween;
  entries_ = one_run_ ? std::clamp<int64_t>(kTogether / (plane_ * parts_), 1, std::max<int64_t>(1, g.batch)) : 1;
  pitch_ = one_run_ ? part_[2] : g.out[2];
  slice_ = one_run_ ? part_[1] * part_[2] : g.out[1] * g.out[2];
  for (int64_t k = 0; k < g.window_size(); ++k)
    offsets_.push_back(place_of({k / (g.window[1] * g.window[2]) * g.dilation[0],
                                 k / g.window[2] % g.window[1] * g.dilation[1], k % g.window[2] * g.dilation[2]}));
}

// Where an element of the padded plane lies.
template <class T>
int64_t Depthwise<T>::place_of(const Three& at) const {
  int64_t part = 0, place = 0;
  for (size_t d = 0; d < 3; ++d) {
    part = part * split_[d] + at[d] % split_[d];
    place = place * part_[d] + at[d] / split_[d];
  }
  return part * entries_ * plane_ + place;
}

// fn(memory, task) on all threads.
template <class T>
template <class Fn>
void Depthwise<T>::each(int64_t tasks, const Fn& fn) {
  std::vector<Space> spaces;
  auto take = [&](int64_t count) { return call_.scratch().template take<T>(count); };
  for (int i = 0; i < call_.team().size(); ++i)
    spaces.push_back({take(places_size()), take(padded_size()), take(std::max({g_.in[2], pitch_, kLongLine}))});
  call_.team().parallel_for_indexed(tasks, 1, [&](int thread, int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) fn(spaces[static_cast<size_t>(thread)], task);
  });
}

// Calls fn(at, step, count, place) for runs of input that windows see: elements of the image at `at`, `step` apart,
// that lie side by side in the padded plane.
template <class T>
template <class Fn>
void Depthwise<T>::each_run(const Image& x, int64_t entry, int64_t channel, const Fn& fn) const {
  Three end;
  for (size_t d = 0; d < 3; ++d) end[d] = std::min(g_.in[d], reach(g_, d) - g_.padding[d]);
  for (int64_t d = 0; d < end[0]; ++d)
    for (int64_t h = 0; h < end[1]; ++h)
      for (int64_t w = 0; w < std::min(split_[2], end[2]); ++w)
        fn(line_of(x, entry, channel, d, h) + w * x.step[2], split_[2] * x.step[2],
           (end[2] - w + split_[2] - 1) / split_[2],
           place_of({d + g_.padding[0], h + g_.padding[1], w + g_.padding[2]}));
}

template <class T>
void Depthwise<T>::read_padded(const Image& x, int64_t entry, int64_t channel, T* to) const {
  each_run(x, entry, channel,
           [&](int64_t at, int64_t step, int64_t count, int64_t place) { read_run(x, at, step, count, to + place); });
}

// Elements that no window sees are the bias alone.
template <class T>
void Depthwise<T>::write_padded(const T* from, T bias, const Image& x, int64_t entry, int64_t channel, T* line) const {
  bool all = true;
  for (size_t d = 0; d < 3; ++d) all = all && reach(g_, d) - g_.padding[d] >= g_.in[d];
  std::fill_n(line, g_.in[2], bias);
  for (int64_t d = 0; !all && d < g_.in[0]; ++d)
    for (int64_t h = 0; h < g_.in[1]; ++h) write_run(line, x, line_of(x, entry, channel, d, h), x.step[2], g_.in[2]);
  each_run(x, entry, channel, [&](int64_t at, int64_t step, int64_t count, int64_t place) {
    write_run(from + place, x, at, step, count);
  });
}

// Calls fn(at, place, count) for the lines of places, or for all of them where they lie side by side: `at` of the
// image, `place` of the plane of them.
template <class T>
template <class Fn>
void Depthwise<T>::each_line(const Image& y, int64_t entry, int64_t channel, const Fn& fn) const {
  const bool planes_side_by_side = slice_ == g_.out[1] * g_.out[2] && y.step[0] == slice_;
  if (pitch_ == g_.out[2] && y.step[2] == 1 && y.step[1] == pitch_ && (g_.out[0] == 1 || planes_side_by_side))
    return fn(line_of(y, entry, channel, 0, 0), 0, g_.places());
  for (int64_t d = 0; d < g_.out[0]; ++d)
    for (int64_t h = 0; h < g_.out[1]; ++h) fn(line_of(y, entry, channel, d, h), d * slice_ + h * pitch_, g_.out[2]);
}

// Calls fn(lines of places, lines of what they see, rows, length): of all entries at once, or of planes of two axes.
template <class T>
template <class Fn>
void Depthwise<T>::each_slice(T* places, T* seen, int64_t entries, bool at_once, const Fn& fn) const {
  if (at_once) return fn(Lines<T>{places, 0}, Lines<T>{seen, 0}, 1, run_of(entries));
  for (int64_t e = 0; e < entries; ++e)
    for (int64_t d = 0; d < g_.out[0]; ++d)
      fn(Lines<T>{places + e * plane_ + d * slice_, pitch_},
         Lines<T>{seen + e * plane_ + d * part_[1] * part_[2], part_[2]}, g_.out[1], g_.out[2]);
}

// A channel of entries from `first` on, and the gradients of its places; zeros between lines.
template <class T>
void Depthwise<T>::read_planes(const Image& x, int64_t first, int64_t entries, int64_t channel, T* to) const {
  std::fill_n(to, padded_size(), T(0));
  for (int64_t e = 0; e < entries; ++e) read_padded(x, first + e, channel, to + e * plane_);
}

template <class T>
void Depthwise<T>::read_places(const Image& y, int64_t first, int64_t entries, int64_t channel, T* to) const {
  if (one_run_) std::fill_n(to, places_size(), T(0));
  for (int64_t e = 0; e < entries; ++e)
    each_line(y, first + e, channel,
              [&](int64_t at, int64_t place, int64_t n) { read_run(y, at, y.step[2], n, to + e * plane_ + place); });
}

template <class T>
T Depthwise<T>::number_at(const Tensor& t, int64_t i) const {
  T number = 0;
  if (!t.is_none())
    visit_floating(t.dtype,
                   [&]<class From>() { number = static_cast<T>(static_cast<Compute<From>>(t.as<From>()[i])); });
  return number;
}

template <class T>
void Depthwise<T>::output(const Image& x, const Tensor& weight, const Tensor& bias, const Image& y) {
  each(blocks() * g_.groups, [&](Space& s, int64_t task) {
    const int64_t first = task / g_.groups * entries_, group = task % g_.groups;
    const int64_t entries = std::min(entries_, g_.batch - first);
    read_planes(x, first, entries, group, s.padded);
    for (int64_t channel = group * g_.out_channels; channel < (group + 1) * g_.out_channels; ++channel) {
      std::fill_n(s.places, places_size(), number_at(bias, bias.is_none() ? 0 : channel * bias.step(0)));
      for (int64_t k = 0; k < g_.window_size(); ++k) {
        const T by = number_at(weight, channel * g_.window_size() + k);
        each_slice(s.places, s.padded + offsets_[static_cast<size_t>(k)], entries, one_run_,
                   [&](Lines<T> places, Lines<T> seen, int64_t rows, int64_t length) {
                     add_scaled<T>({seen.data, seen.step}, by, rows, length, places);
                   });
      }
      for (int64_t e = 0; e < entries; ++e)
        each_line(y, first + e, channel, [&](int64_t at, int64_t place, int64_t n) {
          write_run(s.places + e * plane_ + place, y, at, y.step[2], n);
        });
    }
  });
}

template <class T>
void Depthwise<T>::input(const Image& y, const Tensor& weight, const Tensor& bias, const Image& x) {
  each(blocks() * g_.groups, [&](Space& s, int64_t task) {
    const int64_t first = task / g_.groups * entries_, group = task % g_.groups;
    const int64_t entries = std::min(entries_, g_.batch - first);
    const T start = number_at(bias, bias.is_none() ? 0 : group * bias.step(0));
    std::fill_n(s.padded, padded_size(), start);
    for (int64_t channel = group * g_.out_channels; channel < (group + 1) * g_.out_channels; ++channel) {
      read_places(y, first, entries, channel, s.places);
      for (int64_t k = 0; k < g_.window_size(); ++k) {
        const T by = number_at(weight, channel * g_.window_size() + k);
        const bool at_once = one_run_ && std::isfinite(by);  // else a zero between lines, times it, is none
        each_slice(s.places, s.padded + offsets_[static_cast<size_t>(k)], entries, at_once,
                   [&](Lines<T> places, Lines<T> seen, int64_t rows, int64_t length) {
                     add_scaled<T>({places.data, places.step}, by, rows, length, seen);
                   });
      }
    }
    for (int64_t e = 0; e < entries; ++e) write_padded(s.padded + e * plane_, start, x, first + e, group, s.line);
  });
}

// What one offset of the window sees, times the places' gradients: summed up in columns, and what they come to, in
// double. A line has the columns of the places', or, at once, those of several with what lies between.
template <class T>
double Depthwise<T>::products(const Space& s, int64_t offset, int64_t entries, bool at_once) const {
  const int64_t columns = at_once ? std::max<int64_t>(1, kLongLine / pitch_) * pitch_ : g_.out[2];
  std::fill_n(s.line, columns, T(0));
  each_slice(s.places, s.padded + offset, entries, at_once, [&](Lines<T> a, Lines<T> b, int64_t rows, int64_t length) {
    if (!at_once) return add_products<T>({a.data, a.step}, {b.data, b.step}, rows, length, s.line);
    const int64_t lines = length / columns, rest = lines * columns;
    add_products<T>({a.data, columns}, {b.data, columns}, lines, columns, s.line);
    add_products<T>({a.data + rest, 0}, {b.data + rest, 0}, 1, length - rest, s.line);
  });
  return row_sum(s.line, columns);
}

template <class T>
void Depthwise<T>::weight(const Image& x, const Image& y, const Tensor& out) {
  const int64_t window = g_.window_size();
  each(g_.groups * g_.out_channels, [&](Space& s, int64_t channel) {
    std::vector<double> sums(static_cast<size_t>(window));
    for (int64_t first = 0; first < g_.batch; first += entries_) {
      const int64_t entries = std::min(entries_, g_.batch - first);
      read_planes(x, first, entries, channel / g_.out_channels, s.padded);
      read_places(y, first, entries, channel, s.places);
      for (size_t k = 0; k < sums.size(); ++k) {
        double sum = products(s, offsets_[k], entries, one_run_);
        // An infinity or NaN may have met a zero between lines.
        if (one_run_ && !std::isfinite(sum)) sum = products(s, offsets_[k], entries, false);
        sums[k] += sum;
      }
    }
    visit_floating(out.dtype, [&]<class To>() {
      for (size_t k = 0; k < sums.size(); ++k)
        out.as<To>()[channel * window + static_cast<int64_t>(k)] = static_cast<To>(static_cast<Compute<To>>(sums[k]));
    });
  });
}

template class Depthwise<float>;
template class Depthwise<double>;

}  // namespace sg::cpu
