// Convolutions of one to three dimensions, forward and backward, as products of blocks:
//
//   output      Y = W @ columns(X)          columns: what the window sees at each place, [channels * window, places]
//   input       dX = scatter(W^T @ dY)      the same places, added up
//   weight      dW = dY @ columns(X)^T
//
// A transposed convolution is the second of these, its backward the other two with the roles of X and Y exchanged.
// Columns exist for a block of places at a time; a task owns what it sums up. Sums go by chains that are shorter than
// those of gemm(): models of convolutions and batch norms multiply rounding errors, most of which are made here.
#include <algorithm>
#include <array>
#include <vector>

#include "librun/cpu/convolution_depthwise.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/gemm_block.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kPlaces = kSumBlock;       // a block of places
constexpr int64_t kRowBlock = 112;           // of output channels at a time
constexpr int64_t kWeightColumns = 128;      // of a weight gradient's task
constexpr int64_t kImageElements = 1 << 16;  // of an input gradient's task, unless one channel has more

// How many of `count` products are summed up by themselves: about its root, where a chain is as exact as the chains'
// sum.
constexpr int64_t chain_of(int64_t count) {
  int64_t chain = 32;
  while (chain < kSumBlock && chain * chain < count) chain *= 2;
  return chain;
}

using Three = std::array<int64_t, 3>;
using Geometry = ConvolutionGeometry;

Three split(int64_t at, const Three& sizes) {
  return {at / (sizes[1] * sizes[2]), at / sizes[2] % sizes[1], at % sizes[2]};
}

// Calls fn(j, count, at) for runs of places that lie side by side on the last axis: the first is place + j and lies at
// `at`. What a place costs is then what is done with it, and no divisions.
template <class Fn>
void each_run(const Three& sizes, int64_t place, int64_t places, const Fn& fn) {
  if (places == 0) return;  // nor has `sizes` to have any
  Three at = split(place, sizes);
  for (int64_t j = 0, count = 0; j < places; j += count) {
    count = std::min(places - j, sizes[2] - at[2]);
    fn(j, count, at);
    at[2] = 0;
    if (++at[1] == sizes[1]) at[1] = 0, ++at[0];
  }
}

// What windows see of the input at one offset, along a run of places: those before `begin` and from `end` on see what
// is outside.
struct Seen {
  Three first{0, 0, 0};  // what the first place sees, maybe outside
  int64_t begin = 0, end = 0;
};

Seen seen_along(const Geometry& g, const Three& offset, const Three& at, int64_t count) {
  Seen out;
  for (size_t d = 0; d < 3; ++d) out.first[d] = at[d] * g.stride[d] - g.padding[d] + offset[d] * g.dilation[d];
  for (size_t d = 0; d < 2; ++d)
    if (out.first[d] < 0 || out.first[d] >= g.in[d]) return out;
  auto steps = [&](int64_t length) {  // places until that many elements are behind
    return length <= 0 ? 0 : g.stride[2] == 1 ? length : (length - 1) / g.stride[2] + 1;
  };
  out.end = std::min(count, steps(g.in[2] - out.first[2]));
  out.begin = std::min(out.end, steps(-out.first[2]));
  return out;
}

// to[i] = from[i * step], with a loop of its own for what lies side by side.
template <class To, class From>
void copy_run(const From* from, int64_t step, int64_t count, To* to) {
  if (step == 1)
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<Compute<From>>(from[i]));
  else
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<Compute<From>>(from[i * step]));
}

// to[r, j]: row `row + r` (channel and offset in the window) at place `place + j`; rows kPlaces apart. Outside is zero.
template <class T>
void fill_columns(const Geometry& g, const Image& image, int64_t entry, int64_t group, int64_t row, int64_t rows,
                  int64_t place, int64_t places, T* to) {
  visit_floating(image.dtype, [&]<class From>() {
    for (int64_t r = 0; r < rows; ++r, to += kPlaces) {
      int64_t channel = group * g.in_channels + (row + r) / g.window_size();
      Three offset = split((row + r) % g.window_size(), g.window);
      const From* from =
          reinterpret_cast<const From*>(image.data) + entry * image.batch_step + channel * image.channel_step;
      each_run(g.out, place, places, [&](int64_t j, int64_t count, const Three& at) {
        const Seen seen = seen_along(g, offset, at, count);
        std::fill(to + j, to + j + seen.begin, T(0));
        std::fill(to + j + seen.end, to + j + count, T(0));
        if (seen.begin == seen.end) return;
        int64_t first = seen.first[0] * image.step[0] + seen.first[1] * image.step[1] +
                        (seen.first[2] + seen.begin * g.stride[2]) * image.step[2];
        copy_run(from + first, g.stride[2] * image.step[2], seen.end - seen.begin, to + j + seen.begin);
      });
    }
  });
}

// The other way: adds columns to where they came from. image: [channels, in...], contiguous.
template <class T>
void add_columns(const Geometry& g, const T* columns, int64_t step, int64_t rows, int64_t place, int64_t places,
                 T* image) {
  for (int64_t r = 0; r < rows; ++r, columns += step) {
    T* to = image + r / g.window_size() * (g.in[0] * g.in[1] * g.in[2]);
    Three offset = split(r % g.window_size(), g.window);
    each_run(g.out, place, places, [&](int64_t j, int64_t count, const Three& at) {
      const Seen seen = seen_along(g, offset, at, count);
      if (seen.begin == seen.end) return;
      T* first = to + (seen.first[0] * g.in[1] + seen.first[1]) * g.in[2] + seen.first[2] + seen.begin * g.stride[2];
      const T* from = columns + j + seen.begin;
      int64_t length = seen.end - seen.begin;
      if (g.stride[2] == 1)
        for (int64_t i = 0; i < length; ++i) first[i] += from[i];
      else
        for (int64_t i = 0; i < length; ++i) first[i * g.stride[2]] += from[i];
    });
  }
}

// The output itself as columns: a window of one place.
Geometry as_places(const Geometry& g) {
  Geometry out = g;
  out.in = g.out;
  out.in_channels = g.out_channels;
  out.window = out.stride = out.dilation = {1, 1, 1};
  out.padding = {0, 0, 0};
  return out;
}

// Writes rows of [channel, place] into an image of the geometry's output (or of `sizes`).
template <class T>
void store_places(const T* from, int64_t step, const Image& image, int64_t entry, int64_t channel, int64_t rows,
                  const Three& sizes, int64_t place, int64_t places) {
  visit_floating(image.dtype, [&]<class To>() {
    for (int64_t r = 0; r < rows; ++r) {
      To* to = reinterpret_cast<To*>(const_cast<std::byte*>(image.data)) + entry * image.batch_step +
               (channel + r) * image.channel_step;
      each_run(sizes, place, places, [&](int64_t j, int64_t count, const Three& at) {
        To* first = to + at[0] * image.step[0] + at[1] * image.step[1] + at[2] * image.step[2];
        const T* row = from + r * step + j;
        if (image.step[2] == 1)
          for (int64_t i = 0; i < count; ++i) first[i] = static_cast<To>(static_cast<Compute<To>>(row[i]));
        else
          for (int64_t i = 0; i < count; ++i)
            first[i * image.step[2]] = static_cast<To>(static_cast<Compute<To>>(row[i]));
      });
    }
  });
}

template <class T>
MatrixView view_of(const T* data, int64_t row_step, int64_t column_step = 1) {
  return {reinterpret_cast<const std::byte*>(data), kTileType<T>, row_step, column_step};
}

// The three products. Weights are contiguous: [groups * out channels, in channels, window...].
template <class T>
class Convolution {
 public:
  Convolution(KernelCall& call, const Geometry& g)
      : call_(call),
        g_(g),
        kernels_(tile_kernels<T>(best_isa())),
        later_(call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add) {}

  void output(const Image& x, const Tensor& weight, const Tensor& bias, const Image& y) {
    int64_t blocks = (g_.places() + kPlaces - 1) / kPlaces,
            channel_blocks = (g_.out_channels + kRowBlock - 1) / kRowBlock;
    int64_t chain = chain_of(g_.depth());
    struct Space {
      T *a, *columns, *sums, *panel;
    };
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back(
          {take(kRowBlock * kPackedRow), take(kSumBlock * kPlaces), take(kRowBlock * kPlaces), take(kPanelSize)});
    each(g_.batch * g_.groups * channel_blocks * blocks, [&](int thread, int64_t task) {
      Space& s = spaces[static_cast<size_t>(thread)];
      int64_t block = task % blocks, rest = task / blocks, channel = rest % channel_blocks * kRowBlock;
      int64_t group = rest / channel_blocks % g_.groups, entry = rest / channel_blocks / g_.groups;
      int64_t rows = std::min(kRowBlock, g_.out_channels - channel), place = block * kPlaces,
              places = std::min(kPlaces, g_.places() - place);
      MatrixView w = weight_rows(weight, group * g_.out_channels + channel);
      TileStart start = TileStart::zero;
      for (int64_t k = 0; k == 0 || k < g_.depth(); k += kSumBlock, start = later_) {
        int64_t depth = std::min(kSumBlock, g_.depth() - k);
        pack_a(kernels_, w.at(0, k), rows, depth, s.a);
        fill_columns(g_, x, entry, group, k, depth, place, places, s.columns);
        MatrixView seen = view_of(s.columns, kPlaces);
        multiply(s.a, rows, seen, places, depth, {start, later_}, chain, s.sums, kPlaces, s.panel);
      }
      if (!bias.is_none()) add_bias(bias, group * g_.out_channels + channel, rows, places, s.sums);
      store_places(s.sums, kPlaces, y, entry, group * g_.out_channels + channel, rows, g_.out, place, places);
    });
  }

  void input(const Image& y, const Tensor& weight, const Tensor& bias, const Image& x) {
    int64_t image_size = g_.in[0] * g_.in[1] * g_.in[2];
    int64_t channels =
        std::clamp<int64_t>(kImageElements / std::max<int64_t>(image_size, 1), 1, std::max<int64_t>(g_.in_channels, 1));
    channels = std::min(channels, std::max<int64_t>(1, kRowBlock / g_.window_size()));
    int64_t channel_blocks = (g_.in_channels + channels - 1) / channels, rows_limit = channels * g_.window_size();
    int64_t chain = chain_of(g_.out_channels);
    Geometry flat = as_places(g_);
    struct Space {
      T *a, *columns, *sums, *panel, *image;
    };
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back({take(rows_limit * kPackedRow), take(kSumBlock * kPlaces), take(rows_limit * kPlaces),
                        take(kPanelSize), take(channels * image_size)});
    each(g_.batch * g_.groups * channel_blocks, [&](int thread, int64_t task) {
      Space& s = spaces[static_cast<size_t>(thread)];
      int64_t channel = task % channel_blocks * channels, group = task / channel_blocks % g_.groups,
              entry = task / channel_blocks / g_.groups;
      int64_t count = std::min(channels, g_.in_channels - channel), rows = count * g_.window_size();
      MatrixView w = weight_rows(weight, group * g_.out_channels)
                         .transposed()
                         .at(channel * g_.window_size(), 0);  // [row, out channel]
      std::fill_n(s.image, count * image_size, T(0));
      for (int64_t place = 0; place < g_.places(); place += kPlaces) {
        int64_t places = std::min(kPlaces, g_.places() - place);
        TileStart start = TileStart::zero;
        for (int64_t k = 0; k == 0 || k < g_.out_channels; k += kSumBlock, start = later_) {
          int64_t depth = std::min(kSumBlock, g_.out_channels - k);
          pack_a(kernels_, w.at(0, k), rows, depth, s.a);
          fill_columns(flat, y, entry, group, k, depth, place, places, s.columns);
          MatrixView seen = view_of(s.columns, kPlaces);
          multiply(s.a, rows, seen, places, depth, {start, later_}, chain, s.sums, kPlaces, s.panel);
        }
        add_columns(g_, s.sums, kPlaces, rows, place, places, s.image);
      }
      int64_t first = group * g_.in_channels + channel;
      for (int64_t c = 0; c < count && !bias.is_none(); ++c)
        add_bias(bias, first + c, 1, image_size, s.image + c * image_size);
      store_places(s.image, image_size, x, entry, first, count, g_.in, 0, image_size);
    });
  }

  void weight(const Image& x, const Image& y, const Tensor& out) {
    int64_t blocks = (g_.depth() + kWeightColumns - 1) / kWeightColumns,
            channel_blocks = (g_.out_channels + kRowBlock - 1) / kRowBlock;
    int64_t chain = chain_of(g_.batch * g_.places());
    Geometry flat = as_places(g_);
    struct Space {
      T *rows, *a, *columns, *sums, *panel;
    };
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back({take(kRowBlock * kPlaces), take(kRowBlock * kPackedRow), take(kWeightColumns * kPlaces),
                        take(kRowBlock * kWeightColumns), take(kPanelSize)});
    each(g_.groups * channel_blocks * blocks, [&](int thread, int64_t task) {
      Space& s = spaces[static_cast<size_t>(thread)];
      int64_t column = task % blocks * kWeightColumns, channel = task / blocks % channel_blocks * kRowBlock,
              group = task / blocks / channel_blocks;
      int64_t rows = std::min(kRowBlock, g_.out_channels - channel),
              columns = std::min(kWeightColumns, g_.depth() - column);
      std::fill_n(s.sums, kRowBlock * kWeightColumns, T(0));
      for (int64_t entry = 0; entry < g_.batch; ++entry)
        for (int64_t place = 0; place < g_.places(); place += kPlaces) {
          int64_t places = std::min(kPlaces, g_.places() - place);
          fill_columns(flat, y, entry, group, channel, rows, place, places, s.rows);
          pack_a(kernels_, view_of(s.rows, kPlaces), rows, places, s.a);
          fill_columns(g_, x, entry, group, column, columns, place, places, s.columns);
          MatrixView seen = view_of(s.columns, kPlaces).transposed();
          multiply(s.a, rows, seen, columns, places, {later_, later_}, chain, s.sums, kWeightColumns, s.panel);
        }
      MatrixView to{out.data, out.dtype, g_.depth(), 1};
      store_block(s.sums, kWeightColumns, to.at(group * g_.out_channels + channel, column), rows, columns);
    });
  }

 private:
  T* take(int64_t count) { return call_.scratch().take<T>(count); }

  template <class Fn>
  void each(int64_t tasks, const Fn& fn) {
    call_.team().parallel_for_indexed(tasks, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) fn(thread, task);
    });
  }

  // sums (start)= a @ b, at most kSumBlock deep, `chain` products at a time.
  void multiply(const T* a, int64_t rows, const MatrixView& b, int64_t columns, int64_t depth, Starts start,
                int64_t chain, T* sums, int64_t step, T* panel) const {
    for (int64_t k = 0; k == 0 || k < depth; k += chain, start.first = start.later) {
      int64_t length = std::min(chain, depth - k);
      multiply_packed(kernels_, a + k, rows, b.at(k, 0), columns, length, start, sums, step, true, panel);
    }
  }

  MatrixView weight_rows(const Tensor& weight, int64_t row) const {
    return MatrixView{weight.data, weight.dtype, g_.depth(), 1}.at(row, 0);
  }

  void add_bias(const Tensor& bias, int64_t channel, int64_t rows, int64_t columns, T* sums) const {
    visit_floating(bias.dtype, [&]<class B>() {
      for (int64_t r = 0; r < rows; ++r) {
        T b = static_cast<T>(static_cast<Compute<B>>(bias.as<B>()[(channel + r) * bias.step(0)]));
        for (int64_t j = 0; j < columns; ++j) sums[r * kPlaces + j] += b;
      }
    });
  }

  KernelCall& call_;
  const Geometry& g_;
  const TileKernels<T>& kernels_;
  TileStart later_;
};

// Sums of an image by channel, in double.
void bias_gradient(KernelCall& call, const Image& y, int64_t channels, const Three& sizes, const Tensor& out) {
  const int64_t batch = call.tensor("grad_output").dim(0);
  visit_floating(y.dtype, [&]<class From>() {
    call.team().parallel_for(channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t channel = begin; channel < end; ++channel) {
        double sum = 0;
        for (int64_t entry = 0; entry < batch; ++entry) {
          const From* from = reinterpret_cast<const From*>(y.data) + entry * y.batch_step + channel * y.channel_step;
          for (int64_t i = 0; i < sizes[0]; ++i)
            for (int64_t j = 0; j < sizes[1]; ++j)
              for (int64_t k = 0; k < sizes[2]; ++k)
                sum += static_cast<double>(
                    static_cast<Compute<From>>(from[i * y.step[0] + j * y.step[1] + k * y.step[2]]));
        }
        out.as<From>()[channel * out.step(0)] = static_cast<From>(static_cast<Compute<From>>(sum));
      }
    });
  });
}

template <class T, class Fn>
void with_products(KernelCall& call, const Geometry& g, const Fn& fn) {
  if (is_depthwise(call, g)) {
    Depthwise<T> c(call, g);
    return fn(c);
  }
  Convolution<T> c(call, g);
  fn(c);
}

template <class T>
void forward(KernelCall& call, const Geometry& g, bool transposed, const Tensor& weight, const Image& in,
             const Image& out) {
  Tensor bias = call.has("bias") ? call.tensor("bias") : Tensor();
  with_products<T>(call, g,
                   [&](auto& c) { transposed ? c.input(in, weight, bias, out) : c.output(in, weight, bias, out); });
}

Status convolution(KernelCall& call) {
  Tensor weight = contiguous(call, call.tensor("weight"));
  Tensor input = image_as_batch(call.tensor("input"), weight.rank), out = image_as_batch(call.result(), weight.rank);
  bool transposed = is_transposed_convolution(call);
  SG_ASSIGN(Geometry g, convolution_geometry(call, transposed ? out : input, transposed ? input : out, weight));
  Image from = image_of(input), to = image_of(out);
  input.dtype == DType::f64 ? forward<double>(call, g, transposed, weight, from, to)
                            : forward<float>(call, g, transposed, weight, from, to);
  return ok_status();
}

template <class T>
void backward(KernelCall& call, const Geometry& g, bool transposed, const Tensor& weight) {
  Image input = image_of(call.tensor("input")), grad = image_of(call.tensor("grad_output"));
  std::span<const int64_t> wanted = call.integers("output_mask");
  if (wanted[0] && !call.result(0).is_none()) {
    Image out = image_of(call.result(0));
    with_products<T>(call, g,
                     [&](auto& c) { transposed ? c.output(grad, weight, {}, out) : c.input(grad, weight, {}, out); });
  }
  if (wanted[1] && !call.result(1).is_none()) {
    const Tensor& result = call.result(1);
    Tensor out = result.is_contiguous() ? result : call.scratch().tensor(result.dtype, result.sizes());
    with_products<T>(call, g, [&](auto& c) { transposed ? c.weight(grad, input, out) : c.weight(input, grad, out); });
    if (out.data != result.data) copy(call, result, out);
  }
  if (wanted[2] && !call.result(2).is_none())
    bias_gradient(call, grad, call.tensor("grad_output").dim(1), transposed ? g.in : g.out, call.result(2));
}

Status convolution_backward(KernelCall& call) {
  const Tensor& input = call.tensor("input");
  const Tensor& grad = call.tensor("grad_output");
  bool transposed = call.flag("transposed");
  if (call.integers("output_mask").size() != 3) return call.fail("needs three results to choose from");
  SG_ASSIGN(Geometry g,
            convolution_geometry(call, transposed ? grad : input, transposed ? input : grad, call.tensor("weight")));
  Tensor weight = contiguous(call, call.tensor("weight"));
  input.dtype == DType::f64 ? backward<double>(call, g, transposed, weight)
                            : backward<float>(call, g, transposed, weight);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.convolution.default", convolution},
    {"aten.conv1d.default", convolution},
    {"aten.conv1d.padding", convolution},
    {"aten.conv2d.default", convolution},
    {"aten.conv2d.padding", convolution},
    {"aten.conv3d.default", convolution},
    {"aten.conv3d.padding", convolution},
    {"aten.conv_transpose1d.default", convolution},
    {"aten.conv_transpose2d.input", convolution},
    {"aten.conv_transpose3d.input", convolution},
    {"aten.convolution_backward.default", convolution_backward},
};

}  // namespace

std::span<const KernelRow> convolution_kernels() { return kRows; }

}  // namespace sg::cpu
