#include "librun/cpu/convolution_depthwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "librun/cpu/blocks.h"
#include "librun/cpu/channel_lanes.h"
#include "librun/cpu/convolution_sight.h"
#include "librun/cpu/isa.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

constexpr int64_t kMostOutputs = 4;        // per group; with more, a matrix product is faster
constexpr int64_t kMostTaps = 1 << 20;     // that are stored
constexpr int64_t kBoxElements = 1 << 15;  // of the lanes of source and target together, to fit a cache
constexpr int64_t kMostEntryBlocks = 16;   // that accumulate separate parts of a weight's gradient

// All lanes of a place: a vector type that the compiler keeps in registers.
template <class T>
struct LaneVector {
  typedef T Type __attribute__((vector_size(kChannelLanes * sizeof(T))));
};
template <class T>
using Vector = typename LaneVector<T>::Type;

template <class T>
SG_INLINE void load(const T* from, Vector<T>& v) {  // by reference: passing such types by value changes the ABI
  std::memcpy(&v, from, sizeof v);
}
template <class T>
SG_INLINE void store(const Vector<T>& v, T* to) {
  std::memcpy(to, &v, sizeof v);
}

// A line of places: what each of them sees, starting at `seen`.
template <class T>
struct Line {
  const std::span<const SightTaps::Tap>* taps;  // by kind
  const int64_t *kind, *base;                   // by place
  const T* seen;
  int64_t origin;  // position of base 0
  int64_t places;
};

// Places from `begin` on, which have the same taps.
template <int kPlaces, class T>
SG_INLINE void add_seen_of(const Line<T>& line, int64_t begin, std::span<const SightTaps::Tap> taps, const T* weight,
                           T* to) {
  Vector<T> sum[kPlaces];
  const T* seen[kPlaces];
#pragma GCC unroll 8
  for (int p = 0; p < kPlaces; ++p) {
    seen[p] = line.seen + (line.origin + line.base[begin + p]) * kChannelLanes;
    load(to + (begin + p) * kChannelLanes, sum[p]);
  }
  for (const SightTaps::Tap& tap : taps) {
    Vector<T> x, w;
    load(weight + int64_t{tap.window} * kChannelLanes, w);
#pragma GCC unroll 8
    for (int p = 0; p < kPlaces; ++p) {
      load(seen[p] + int64_t{tap.at} * kChannelLanes, x);
      sum[p] += x * w;
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPlaces; ++p) store(sum[p], to + (begin + p) * kChannelLanes);
}

// The end of the places with the same taps as place `begin`.
template <class T>
SG_INLINE int64_t run_end(const Line<T>& line, int64_t begin) {
  int64_t end = begin + 1;
  while (end < line.places && line.kind[end] == line.kind[begin]) ++end;
  return end;
}

// to[place] += what the place sees, times the weights
template <class T>
SG_CLONES void add_seen(const Line<T>& line, const T* weight, T* to) {
  constexpr int64_t kTogether = 4;
  for (int64_t i = 0; i < line.places;) {
    const int64_t end = run_end(line, i);
    const std::span<const SightTaps::Tap> taps = line.taps[line.kind[i]];
    for (; i + kTogether <= end; i += kTogether) add_seen_of<kTogether>(line, i, taps, weight, to);
    for (; i < end; ++i) add_seen_of<1>(line, i, taps, weight, to);
  }
}

// Places [begin, end) of the line, which have the same taps: sums of a few taps at a time stay in registers.
template <int kTaps, class T>
SG_INLINE void add_products_of(const Line<T>& line, int64_t begin, int64_t end, const SightTaps::Tap* taps,
                               const T* grad, double* sums) {
  double sum[kTaps][kChannelLanes];
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t)
    for (int l = 0; l < kChannelLanes; ++l) sum[t][l] = sums[int64_t{taps[t].window} * kChannelLanes + l];
  for (int64_t i = begin; i < end; ++i) {
    const T *seen = line.seen + (line.origin + line.base[i]) * kChannelLanes, *g = grad + i * kChannelLanes;
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t) {
      const T* x = seen + int64_t{taps[t].at} * kChannelLanes;
      for (int l = 0; l < kChannelLanes; ++l)
        sum[t][l] = std::fma(static_cast<double>(x[l]), static_cast<double>(g[l]), sum[t][l]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t)
    for (int l = 0; l < kChannelLanes; ++l) sums[int64_t{taps[t].window} * kChannelLanes + l] = sum[t][l];
}

// sums[window position] += what places see there, times their gradient
template <class T>
SG_CLONES void add_products(const Line<T>& line, const T* grad, double* sums) {
  constexpr size_t kTogether = 3;
  for (int64_t i = 0, end = 0; i < line.places; i = end) {
    end = run_end(line, i);
    const std::span<const SightTaps::Tap> taps = line.taps[line.kind[i]];
    size_t t = 0;
    for (; t + kTogether <= taps.size(); t += kTogether)
      add_products_of<kTogether>(line, i, end, taps.data() + t, grad, sums);
    for (; t < taps.size(); ++t) add_products_of<1>(line, i, end, taps.data() + t, grad, sums);
  }
}

// Boxes of target places, and the parts of the source that they see.
class SeenBoxes {
 public:
  struct Box {
    Three begin, size, seen_begin, seen_size;
  };

  explicit SeenBoxes(const Sight& sight) : sight_(sight) {
    for (size_t d = 0; d < 3; ++d) most_.size[d] = sight[d].places(), measure(d);
    for (size_t d = 0; d < 3; ++d)
      while (most_.size[d] > 1 && (size() + seen_size()) * kChannelLanes > kBoxElements)
        most_.size[d] = blocks_of(most_.size[d], 2), measure(d);
  }
  int64_t count() const { return counts_[0] * counts_[1] * counts_[2]; }
  Box at(int64_t i) const {
    Box box;
    for (size_t d = 3; d-- > 0; i /= counts_[d]) {
      box.begin[d] = i % counts_[d] * most_.size[d];
      box.size[d] = std::min(most_.size[d], sight_[d].places() - box.begin[d]);
      const auto [first, end] = seen_[d][static_cast<size_t>(i % counts_[d])];
      box.seen_begin[d] = first, box.seen_size[d] = end - first;
    }
    return box;
  }
  // Sizes and strides of the largest box, whose layout all boxes use.
  int64_t size() const { return most_.size[0] * most_.size[1] * most_.size[2]; }
  int64_t seen_size() const { return most_.seen_size[0] * most_.seen_size[1] * most_.seen_size[2]; }
  Three pitch() const { return {most_.size[1] * most_.size[2], most_.size[2], 1}; }
  Three seen_pitch() const { return {most_.seen_size[1] * most_.seen_size[2], most_.seen_size[2], 1}; }

 private:
  void measure(size_t d) {
    const int64_t places = sight_[d].places(), size = most_.size[d];
    counts_[d] = size == 0 ? 0 : blocks_of(places, size);
    most_.seen_size[d] = 0;
    seen_[d].clear();
    for (int64_t begin = 0; begin < places; begin += size) {
      seen_[d].push_back(sight_[d].seen(begin, std::min(places, begin + size)));
      most_.seen_size[d] = std::max(most_.seen_size[d], seen_[d].back()[1] - seen_[d].back()[0]);
    }
  }

  const Sight& sight_;
  Box most_{};
  Three counts_{};
  std::array<std::vector<std::array<int64_t, 2>>, 3> seen_;  // by axis, then by box
};

// One direction between input and output, for 16 groups at a time.
template <class T>
class Depthwise {
 public:
  Depthwise(KernelCall& call, const ConvolutionGeometry& g, const Sight& sight)
      : call_(call),
        g_(g),
        sight_(sight),
        boxes_(sight),
        taps_(sight, g.window, boxes_.seen_pitch()),
        kernels_(tile_kernels<T>(best_isa())) {
    for (int i = 0; i < call.team().size(); ++i)
      spaces_.push_back({take(boxes_.seen_size() * kChannelLanes), take(boxes_.size() * kChannelLanes),
                         take(std::max(boxes_.seen_size(), boxes_.size()) * kChannelLanes)});
  }

  void output(const Image& x, const Tensor& weight, const Tensor& bias, const Image& y) {
    const T *weights = packed_weight(weight), *starts = packed_bias(bias, g_.out_channels);
    each(g_.batch, [&](const Task& t, const Space& s) {
      read(x, of_seen(t, 0, 1), s.seen);
      for (int64_t j = 0; j < g_.out_channels; ++j) {
        begin_places(starts + (t.block * g_.out_channels + j) * kChannelLanes, s.places);
        for_lines(t.box, s, [&](const Line<T>& line, T* to) { add_seen(line, weight_of(weights, t, j), to); });
        write_lanes(kernels_, s.places, boxes_.pitch(), y, of_places(t, j, g_.out_channels), s.turned);
      }
    });
  }

  void input(const Image& y, const Tensor& weight, const Tensor& bias, const Image& x) {
    const T *weights = packed_weight(weight), *starts = packed_bias(bias, 1);
    each(g_.batch, [&](const Task& t, const Space& s) {
      begin_places(starts + t.block * kChannelLanes, s.places);
      for (int64_t j = 0; j < g_.out_channels; ++j) {
        read(y, of_seen(t, j, g_.out_channels), s.seen);
        for_lines(t.box, s, [&](const Line<T>& line, T* to) { add_seen(line, weight_of(weights, t, j), to); });
      }
      write_lanes(kernels_, s.places, boxes_.pitch(), x, of_places(t, 0, 1), s.turned);
    });
  }

  void weight(const Image& x, const Image& y, const Tensor& out) {
    const int64_t together = std::max<int64_t>(1, blocks_of(g_.batch, kMostEntryBlocks));
    const int64_t entry_blocks = blocks_of(g_.batch, together),
                  sums = g_.out_channels * g_.window_size() * kChannelLanes;
    auto* totals = call_.scratch().template take<double>(entry_blocks * group_blocks() * sums);
    call_.team().parallel_for_indexed(entry_blocks * group_blocks(), 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i / group_blocks() * together;
        std::fill_n(totals + i * sums, sums, 0.0);
        for (int64_t entry = first; entry < std::min(g_.batch, first + together); ++entry)
          for (int64_t b = 0; b < boxes_.count(); ++b)
            add_weights({boxes_.at(b), entry, i % group_blocks()}, x, y, spaces_[static_cast<size_t>(thread)],
                        totals + i * sums);
      }
    });
    store_weights(totals, entry_blocks, out);
  }

 private:
  struct Space {  // lanes of the elements seen by a box, lanes of its places, and memory to transpose either
    T *seen, *places, *turned;
  };
  struct Task {
    SeenBoxes::Box box;
    int64_t entry, block;  // block: of groups
  };

  T* take(int64_t count) { return call_.scratch().template take<T>(count); }
  int64_t group_blocks() const { return blocks_of(g_.groups, kChannelLanes); }
  int64_t groups_of(const Task& t) const { return std::min(kChannelLanes, g_.groups - t.block * kChannelLanes); }

  // Calls fn(task, memory) on all threads.
  template <class Fn>
  void each(int64_t entries, const Fn& fn) const {
    const int64_t blocks = group_blocks(), count = boxes_.count();
    call_.team().parallel_for_indexed(entries * count * blocks, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        fn(Task{boxes_.at(i / blocks % count), i / blocks / count, i % blocks}, spaces_[static_cast<size_t>(thread)]);
    });
  }

  // Channel j of each group, out of `channels`.
  ChannelBox of_seen(const Task& t, int64_t j, int64_t channels) const {
    return {t.box.seen_begin, t.box.seen_size, t.entry, t.block * kChannelLanes * channels + j, groups_of(t), channels};
  }
  ChannelBox of_places(const Task& t, int64_t j, int64_t channels) const {
    return {t.box.begin, t.box.size, t.entry, t.block * kChannelLanes * channels + j, groups_of(t), channels};
  }
  void read(const Image& image, const ChannelBox& box, T* to) const {
    read_lanes(kernels_, image, box, boxes_.seen_pitch(), to);
  }

  void begin_places(const T* start, T* to) const {
    for (int64_t i = 0; i < boxes_.size(); ++i) std::copy_n(start, kChannelLanes, to + i * kChannelLanes);
  }

  // Calls fn(line of places, their lanes).
  template <class Fn>
  void for_lines(const SeenBoxes::Box& box, const Space& s, const Fn& fn) const {
    const Three pitch = boxes_.pitch(), seen_pitch = boxes_.seen_pitch();
    const auto at = [&](const std::vector<int64_t>& of, int64_t i) { return of[static_cast<size_t>(i)]; };
    for (int64_t a = 0; a < box.size[0]; ++a)
      for (int64_t b = 0; b < box.size[1]; ++b) {
        const int64_t i = box.begin[0] + a, j = box.begin[1] + b;
        const int64_t origin = (at(sight_[0].base, i) - box.seen_begin[0]) * seen_pitch[0] +
                               (at(sight_[1].base, j) - box.seen_begin[1]) * seen_pitch[1] - box.seen_begin[2];
        const Line<T> line{taps_.of(at(sight_[0].kind, i), at(sight_[1].kind, j)),
                           sight_[2].kind.data() + box.begin[2],
                           sight_[2].base.data() + box.begin[2],
                           s.seen,
                           origin,
                           box.size[2]};
        fn(line, s.places + (a * pitch[0] + b * pitch[1]) * kChannelLanes);
      }
  }

  // [block of groups, channel of the output, window position, lane]
  const T* packed_weight(const Tensor& weight) {
    const int64_t window = g_.window_size();
    T* packed = take(group_blocks() * g_.out_channels * window * kChannelLanes);
    for (int64_t i = 0; i < group_blocks() * g_.out_channels; ++i) {
      const int64_t group = i / g_.out_channels * kChannelLanes;
      const Image image{weight.data, weight.dtype, 0, g_.out_channels * window, {0, 0, 1}};
      Image of_channel = image;
      of_channel.data += i % g_.out_channels * window * dtype_bytes(weight.dtype);
      read_lanes(kernels_, of_channel,
                 {{0, 0, 0}, {1, 1, window}, 0, group, std::min(kChannelLanes, g_.groups - group), 1},
                 {window, window, 1}, packed + i * window * kChannelLanes);
    }
    return packed;
  }
  const T* weight_of(const T* packed, const Task& t, int64_t j) const {
    return packed + (t.block * g_.out_channels + j) * g_.window_size() * kChannelLanes;
  }

  // [block of groups, channel of the group, lane]; zeros without a bias
  const T* packed_bias(const Tensor& bias, int64_t channels) {
    T* packed = take(group_blocks() * channels * kChannelLanes);
    std::fill_n(packed, group_blocks() * channels * kChannelLanes, T(0));
    if (bias.is_none()) return packed;
    visit_floating(bias.dtype, [&]<class From>() {
      for (int64_t group = 0; group < g_.groups; ++group)
        for (int64_t j = 0; j < channels; ++j)
          packed[(group / kChannelLanes * channels + j) * kChannelLanes + group % kChannelLanes] =
              static_cast<T>(static_cast<Compute<From>>(bias.as<From>()[(group * channels + j) * bias.step(0)]));
    });
    return packed;
  }

  void add_weights(const Task& t, const Image& x, const Image& y, const Space& s, double* sums) const {
    read(x, of_seen(t, 0, 1), s.seen);
    for (int64_t j = 0; j < g_.out_channels; ++j, sums += g_.window_size() * kChannelLanes) {
      read_lanes(kernels_, y, of_places(t, j, g_.out_channels), boxes_.pitch(), s.places);
      for_lines(t.box, s, [&](const Line<T>& line, const T* grad) { add_products(line, grad, sums); });
    }
  }

  void store_weights(const double* totals, int64_t entry_blocks, const Tensor& out) const {
    const int64_t window = g_.window_size(), count = group_blocks() * g_.out_channels * window * kChannelLanes;
    visit_floating(out.dtype, [&]<class To>() {
      for (int64_t group = 0; group < g_.groups; ++group)
        for (int64_t i = 0; i < g_.out_channels * window; ++i) {
          const double* from =
              totals + (group / kChannelLanes * g_.out_channels * window + i) * kChannelLanes + group % kChannelLanes;
          double sum = 0;
          for (int64_t block = 0; block < entry_blocks; ++block) sum += from[block * count];
          out.as<To>()[group * g_.out_channels * window + i] = static_cast<To>(static_cast<Compute<To>>(sum));
        }
    });
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const Sight& sight_;
  const SeenBoxes boxes_;
  const SightTaps taps_;
  const TileKernels<T>& kernels_;
  std::vector<Space> spaces_;
};

}  // namespace

bool is_depthwise(const KernelCall& call, const ConvolutionGeometry& g) {
  if (call.numerics() == Numerics::strict || g.in_channels != 1 || g.out_channels > kMostOutputs) return false;
  double taps = 1, reach = 1;  // upper bounds
  for (size_t d = 0; d < 3; ++d) {
    if (g.in[d] == 0 || g.out[d] == 0) return false;
    const int64_t kinds = std::min(std::max(g.in[d], g.out[d]), 2 * g.window[d] + g.stride[d]);
    taps *= static_cast<double>(kinds * g.window[d]);
    reach *= static_cast<double>(std::min(g.in[d], (g.window[d] - 1) * g.dilation[d] + 1));
  }
  return taps <= kMostTaps && reach <= kBoxElements / (2 * kChannelLanes);
}

template <class T>
void depthwise_output(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Tensor& weight,
                      const Tensor& bias, const Image& y) {
  Depthwise<T>(call, g, output_sight(g)).output(x, weight, bias, y);
}

template <class T>
void depthwise_input(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight,
                     const Tensor& bias, const Image& x) {
  Depthwise<T>(call, g, input_sight(g)).input(y, weight, bias, x);
}

template <class T>
void depthwise_weight(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                      const Tensor& out) {
  Depthwise<T>(call, g, output_sight(g)).weight(x, y, out);
}

#define SG_INSTANTIATE(T)                                                                                 \
  template void depthwise_output<T>(KernelCall&, const ConvolutionGeometry&, const Image&, const Tensor&, \
                                    const Tensor&, const Image&);                                         \
  template void depthwise_input<T>(KernelCall&, const ConvolutionGeometry&, const Image&, const Tensor&,  \
                                   const Tensor&, const Image&);                                          \
  template void depthwise_weight<T>(KernelCall&, const ConvolutionGeometry&, const Image&, const Image&, const Tensor&);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
