// Convolutions of any geometry, by their definition: for tests of kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

namespace sg::test {

struct Convolution {
  int spatial;
  int64_t batch, groups, in_channels, out_channels;  // channels of one group
  std::vector<int64_t> in, window, stride, padding, dilation, output_padding;
  bool transposed;

  std::vector<int64_t> out() const {
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < in.size(); ++d)
      sizes.push_back(transposed ? (in[d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (window[d] - 1) +
                                       output_padding[d] + 1
                                 : (in[d] + 2 * padding[d] - dilation[d] * (window[d] - 1) - 1) / stride[d] + 1);
    return sizes;
  }
};

inline int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

// Calls fn(input element, weight element, output element) for every product of the convolution, from its definition.
template <class Fn>
void for_products(const Convolution& s, const Fn& fn) {
  std::vector<int64_t> out = s.out();
  int64_t in_size = product(s.in), out_size = product(out), window = product(s.window);
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t ci = 0; ci < s.in_channels; ++ci)
        for (int64_t co = 0; co < s.out_channels; ++co)
          for (int64_t w = 0; w < window; ++w)
            for (int64_t p = 0; p < (s.transposed ? in_size : out_size); ++p) {
              const std::vector<int64_t>&places = s.transposed ? s.in : out, &other = s.transposed ? out : s.in;
              int64_t rest_p = p, rest_w = w, at = 0, scale = 1;
              bool inside = true;
              for (size_t d = s.in.size(); d-- > 0;) {
                int64_t x = rest_p % places[d] * s.stride[d] - s.padding[d] + rest_w % s.window[d] * s.dilation[d];
                rest_p /= places[d], rest_w /= s.window[d];
                inside &= x >= 0 && x < other[d];
                at += x * scale;
                scale *= other[d];
              }
              if (!inside) continue;
              int64_t in_at = ((n * s.groups + g) * s.in_channels + ci) * in_size + (s.transposed ? p : at);
              int64_t out_at = ((n * s.groups + g) * s.out_channels + co) * out_size + (s.transposed ? at : p);
              // [out, in / groups, window], or [in, out / groups, window] when transposed
              int64_t w_at = s.transposed ? ((g * s.in_channels + ci) * s.out_channels + co) * window + w
                                          : ((g * s.out_channels + co) * s.in_channels + ci) * window + w;
              fn(static_cast<size_t>(in_at), static_cast<size_t>(w_at), static_cast<size_t>(out_at));
            }
}

template <class T>
Buffer<T> image(Rng& rng, std::vector<int64_t> shape, bool channels_last, std::vector<double>* values) {
  std::vector<int64_t> stride(shape.size(), 1);
  if (channels_last) {
    int64_t step = shape[1];
    for (size_t d = shape.size(); d-- > 2;) stride[d] = step, step *= shape[d];
    stride[0] = step;
  } else {
    for (size_t d = shape.size() - 1; d-- > 0;) stride[d] = stride[d + 1] * shape[d + 1];
  }
  Buffer<T> out(shape, {}, stride);
  for (int64_t i = 0; i < out.tensor().elements(); ++i) {
    out.at(i) = T(static_cast<float>(rng.below(401)) / 100 - 2);
    values->push_back(static_cast<double>(static_cast<Compute<T>>(out.at(i))));
  }
  return out;
}

inline std::vector<int64_t> with_spatial(int64_t a, int64_t b, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out{a, b};
  out.insert(out.end(), sizes.begin(), sizes.end());
  return out;
}

template <class T>
std::vector<Argument> arguments_of(const Convolution& s, const Buffer<T>& input, const Buffer<T>& weight) {
  return {{"input", input},
          {"weight", weight},
          {"stride", ints(s.stride)},
          {"padding", ints(s.padding)},
          {"dilation", ints(s.dilation)},
          {"transposed", s.transposed},
          {"output_padding", ints(s.output_padding)},
          {"groups", s.groups}};
}

inline Convolution random_shape(Rng& rng) {
  Convolution s{static_cast<int>(rng.between(1, 3)),
                rng.between(1, 3),
                rng.between(1, 3),
                rng.between(1, 4),
                rng.between(1, 5),
                {},
                {},
                {},
                {},
                {},
                {},
                rng.below(2) == 0};
  for (int d = 0; d < s.spatial; ++d) {
    s.window.push_back(rng.between(1, 3));
    s.stride.push_back(rng.between(1, 3));
    s.padding.push_back(rng.between(0, 2));
    s.dilation.push_back(rng.between(1, 2));
    s.output_padding.push_back(s.transposed ? rng.between(0, s.stride.back() - 1) : 0);
    s.in.push_back(rng.between(5, s.spatial == 1 ? 300 : 9));
  }
  return s;
}

}  // namespace sg::test
