#include "librun/cpu/convolution_depthwise.h"

#include <algorithm>
#include <type_traits>

#include "librun/cpu/isa.h"
#include "librun/cpu/rows.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kMostOutputs = 4;  // of a group; with more of them a product of matrices pays

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
  padded_ = part_[0] * part_[1] * part_[2] * split_[0] * split_[1] * split_[2];
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
  return part * part_[0] * part_[1] * part_[2] + place;
}

// fn(memory, task) on all threads.
template <class T>
template <class Fn>
void Depthwise<T>::each(int64_t tasks, const Fn& fn) {
  std::vector<Space> spaces;
  auto take = [&](int64_t count) { return call_.scratch().template take<T>(count); };
  for (int i = 0; i < call_.team().size(); ++i)
    spaces.push_back({take(g_.places()), take(padded_), take(std::max(g_.in[2], g_.out[2] * g_.window_size()))});
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
  std::fill_n(to, padded_, T(0));
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
  if (y.step[2] == 1 && y.step[1] == g_.out[2] && (g_.out[0] == 1 || y.step[0] == g_.out[1] * g_.out[2]))
    return fn(line_of(y, entry, channel, 0, 0), 0, g_.places());
  for (int64_t d = 0; d < g_.out[0]; ++d)
    for (int64_t h = 0; h < g_.out[1]; ++h)
      fn(line_of(y, entry, channel, d, h), (d * g_.out[1] + h) * g_.out[2], g_.out[2]);
}

// Calls fn(first place, what it sees at offset 0) for planes of two axes.
template <class T>
template <class Fn>
void Depthwise<T>::each_slice(const Fn& fn) const {
  for (int64_t d = 0; d < g_.out[0]; ++d) fn(d * g_.out[1] * g_.out[2], d * part_[1] * part_[2]);
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
  each(g_.batch * g_.groups, [&](Space& s, int64_t task) {
    const int64_t entry = task / g_.groups, group = task % g_.groups;
    read_padded(x, entry, group, s.padded);
    for (int64_t channel = group * g_.out_channels; channel < (group + 1) * g_.out_channels; ++channel) {
      std::fill_n(s.places, g_.places(), number_at(bias, bias.is_none() ? 0 : channel * bias.step(0)));
      for (int64_t k = 0; k < g_.window_size(); ++k) {
        const T by = number_at(weight, channel * g_.window_size() + k);
        const T* seen = s.padded + offsets_[static_cast<size_t>(k)];
        each_slice([&](int64_t place, int64_t at) {
          add_scaled<T>({seen + at, part_[2]}, by, g_.out[1], g_.out[2], {s.places + place, g_.out[2]});
        });
      }
      each_line(y, entry, channel,
                [&](int64_t at, int64_t place, int64_t n) { write_run(s.places + place, y, at, y.step[2], n); });
    }
  });
}

template <class T>
void Depthwise<T>::input(const Image& y, const Tensor& weight, const Tensor& bias, const Image& x) {
  each(g_.batch * g_.groups, [&](Space& s, int64_t task) {
    const int64_t entry = task / g_.groups, group = task % g_.groups;
    const T first = number_at(bias, bias.is_none() ? 0 : group * bias.step(0));
    std::fill_n(s.padded, padded_, first);
    for (int64_t channel = group * g_.out_channels; channel < (group + 1) * g_.out_channels; ++channel) {
      each_line(y, entry, channel,
                [&](int64_t at, int64_t place, int64_t n) { read_run(y, at, y.step[2], n, s.places + place); });
      for (int64_t k = 0; k < g_.window_size(); ++k) {
        const T by = number_at(weight, channel * g_.window_size() + k);
        T* seen = s.padded + offsets_[static_cast<size_t>(k)];
        each_slice([&](int64_t place, int64_t at) {
          add_scaled<T>({s.places + place, g_.out[2]}, by, g_.out[1], g_.out[2], {seen + at, part_[2]});
        });
      }
    }
    write_padded(s.padded, first, x, entry, group, s.line);
  });
}

// Of an entry's plane each column of places is summed up by itself; what they come to, in double.
template <class T>
void Depthwise<T>::weight(const Image& x, const Image& y, const Tensor& out) {
  const int64_t window = g_.window_size();
  each(g_.groups * g_.out_channels, [&](Space& s, int64_t channel) {
    std::vector<double> sums(static_cast<size_t>(window));
    for (int64_t entry = 0; entry < g_.batch; ++entry) {
      read_padded(x, entry, channel / g_.out_channels, s.padded);
      each_line(y, entry, channel,
                [&](int64_t at, int64_t place, int64_t n) { read_run(y, at, y.step[2], n, s.places + place); });
      for (size_t k = 0; k < sums.size(); ++k) {
        std::fill_n(s.line, g_.out[2], T(0));
        const T* seen = s.padded + offsets_[k];
        each_slice([&](int64_t place, int64_t at) {
          add_products<T>({s.places + place, g_.out[2]}, {seen + at, part_[2]}, g_.out[1], g_.out[2], s.line);
        });
        sums[k] += row_sum(s.line, g_.out[2]);
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
