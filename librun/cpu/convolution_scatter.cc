#include "librun/cpu/convolution_scatter.h"

#include <algorithm>
#include <array>

#include "librun/cpu/convolution_gather.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/gemm.h"
#include "librun/cpu/isa.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

constexpr int64_t kMostRowBytes = int64_t{8} << 20;  // of R for the entries that are computed at a time

// The taps [begin, end) of a place along one axis that lie inside the input, and the element that the first one sees.
struct Seen {
  int64_t begin, end, first;
};
Seen seen_along(const ConvolutionGeometry& g, size_t d, int64_t place) {
  const int64_t start = place * g.stride[d] - g.padding[d], step = g.dilation[d];
  const int64_t begin = start < 0 ? std::min((-start + step - 1) / step, g.window[d]) : 0;
  const int64_t end = start >= g.in[d] ? begin : std::min(g.window[d], (g.in[d] - 1 - start) / step + 1);
  return {begin, std::max(begin, end), start + begin * step};
}

template <class T>
SG_CLONES void add_taps(const T* from, int64_t count, T* to, int64_t step) {
  if (step == 1)
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  else
    for (int64_t i = 0; i < count; ++i) to[i * step] += from[i];
}

template <class T, class To>
SG_CLONES void store_sums(const T* from, T bias, int64_t count, To* to, int64_t step) {
  if (step == 1)
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<Compute<To>>(from[i] + bias));
  else
    for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<To>(static_cast<Compute<To>>(from[i] + bias));
}

// T: the type of sums.
template <class T>
class InputScatter {
 public:
  InputScatter(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight, const Tensor& bias,
               const Image& x)
      : call_(call), g_(g), y_(y), weight_(weight), bias_(bias), x_(x) {
    for (size_t d = 0; d < 3; ++d)
      for (int64_t place = 0; place < g.out[d]; ++place) seen_[d].push_back(seen_along(g, d, place));
  }

  void run() {
    const int64_t places = g_.places(), columns = g_.depth(), elements = g_.in[0] * g_.in[1] * g_.in[2];
    if (g_.batch == 0 || columns == 0 || elements == 0) return;
    const int64_t row_bytes = std::max<int64_t>(places * columns * static_cast<int64_t>(sizeof(T)), 1);
    const int64_t entries = std::clamp<int64_t>(kMostRowBytes / row_bytes, 1, g_.batch);
    const int64_t sizes[] = {entries * places, columns}, gradients[] = {entries * places, g_.out_channels};
    rows_ = call_.scratch().tensor(sizeof(T) == 8 ? DType::f64 : DType::f32, sizes);
    Tensor by_place = call_.scratch().tensor(y_.dtype, gradients);
    for (int i = 0; i < call_.team().size(); ++i) sums_.push_back(call_.scratch().template take<T>(elements));
    for (int64_t group = 0; group < g_.groups; ++group)
      for (int64_t entry = 0; entry < g_.batch; entry += entries) {
        const int64_t count = std::min(entries, g_.batch - entry);
        multiply(by_place, group, entry, count);
        add_up(group, entry, count);
      }
  }

 private:
  void multiply(const Tensor& by_place, int64_t group, int64_t entry, int64_t count) {
    const int64_t channels = g_.out_channels, rows = count * g_.places();
    if (rows == 0) return;
    const int64_t shape[] = {count, g_.out[0], g_.out[1], g_.out[2], channels};
    Tensor from = make_tensor(const_cast<std::byte*>(y_.data), y_.dtype, shape);
    from.data += (entry * y_.batch_step + group * channels * y_.channel_step) * dtype_bytes(y_.dtype);
    from.stride = {y_.batch_step, y_.step[0], y_.step[1], y_.step[2], y_.channel_step};
    copy(call_, make_tensor(by_place.data, y_.dtype, shape), from);
    const int64_t left[] = {rows, channels}, right[] = {channels, g_.depth()}, out[] = {rows, g_.depth()};
    std::byte* const weight = weight_.data + group * channels * g_.depth() * dtype_bytes(weight_.dtype);
    gemm(call_, {make_tensor(rows_.data, rows_.dtype, out), make_tensor(by_place.data, y_.dtype, left),
                 make_tensor(weight, weight_.dtype, right)});
  }

  void add_up(int64_t group, int64_t entry, int64_t count) const {
    const int64_t channels = g_.in_channels;
    call_.team().parallel_for_indexed(count * channels, 1, [&](int thread, int64_t begin, int64_t end) {
      T* const sums = sums_[static_cast<size_t>(thread)];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t e = i / channels, c = i % channels;
        std::fill_n(sums, g_.in[0] * g_.in[1] * g_.in[2], T(0));
        add_places(rows_.as<T>() + e * g_.places() * g_.depth() + c * g_.window_size(), sums);
        store(sums, entry + e, group * channels + c);
      }
    });
  }

  // `row` is what the first place adds.
  void add_places(const T* row, T* sums) const {
    for (const Seen& a : seen_[0])
      for (const Seen& b : seen_[1])
        for (const Seen& c : seen_[2]) {
          if (c.begin < c.end)
            for (int64_t i = a.begin; i < a.end; ++i)
              for (int64_t j = b.begin; j < b.end; ++j) {
                const int64_t z = a.first + (i - a.begin) * g_.dilation[0],
                              y = b.first + (j - b.begin) * g_.dilation[1];
                add_taps(row + (i * g_.window[1] + j) * g_.window[2] + c.begin, c.end - c.begin,
                         sums + (z * g_.in[1] + y) * g_.in[2] + c.first, g_.dilation[2]);
              }
          row += g_.depth();
        }
  }

  void store(const T* sums, int64_t entry, int64_t channel) const {
    const T bias = bias_of<T>(bias_, channel);
    visit_floating(x_.dtype, [&]<class To>() {
      To* to =
          reinterpret_cast<To*>(const_cast<std::byte*>(x_.data)) + entry * x_.batch_step + channel * x_.channel_step;
      for (int64_t a = 0; a < g_.in[0]; ++a)
        for (int64_t b = 0; b < g_.in[1]; ++b, sums += g_.in[2])
          store_sums(sums, bias, g_.in[2], to + a * x_.step[0] + b * x_.step[1], x_.step[2]);
    });
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const Image& y_;
  const Tensor &weight_, &bias_;
  const Image& x_;
  std::array<std::vector<Seen>, 3> seen_;  // by place along an axis
  Tensor rows_;                            // R
  std::vector<T*> sums_;                   // by thread: those of a channel
};

}  // namespace

bool scatters_input(const ConvolutionGeometry& g, std::span<const ConvolutionTargets> targets) {
  // In products a channel of the input. Tiles of few rows run at a fraction of the speed of full ones; adding an
  // element up takes as long as some products.
  constexpr double kFullRows = 4, kPerSum = 16, kClearly = 1.5;
  double gathered = 0;
  for (const ConvolutionTargets& t : targets)
    gathered +=
        static_cast<double>(t.places()) * static_cast<double>(t.variants.size()) * static_cast<double>(t.taps());
  gathered *= static_cast<double>(g.out_channels) * std::max(1.0, kFullRows / static_cast<double>(g.in_channels));
  const double seen = static_cast<double>(g.places()) * static_cast<double>(g.window_size());
  return gathered > kClearly * seen * (static_cast<double>(g.out_channels) + kPerSum);
}

void scatter_input(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight,
                   const Tensor& bias, const Image& x) {
  if (y.dtype == DType::f64) InputScatter<double>(call, g, y, weight, bias, x).run();
  else InputScatter<float>(call, g, y, weight, bias, x).run();
}

}  // namespace sg::cpu
