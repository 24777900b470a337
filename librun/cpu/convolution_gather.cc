// The output of a convolution, and the gradient of its input: each place gathers its operands.
#include <algorithm>
#include <span>

#include "librun/cpu/convolution_gather.h"
#include "librun/cpu/convolution_planes.h"
#include "librun/cpu/convolution_products.h"
#include "librun/cpu/convolution_scatter.h"
#include "librun/cpu/convolution_units.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/isa.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

constexpr int64_t kPlaces = 512;  // per box

template <class T, class To>
SG_CLONES void store_run(const T* from, T bias, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<Compute<To>>(from[i] + bias));
}

template <class T, class To>
void store_line(const T* from, T bias, int64_t count, int64_t step, To* to) {
  if (step == 1) store_run(from, bias, count, to);
  else
    for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<To>(static_cast<Compute<To>>(from[i] + bias));
}

// to += from, whose rows are kMaxTileColumns apart
template <class T>
SG_CLONES void add_sums(const T* from, int64_t rows, int64_t columns, T* to, int64_t step) {
  for (int64_t i = 0; i < rows; ++i, from += kMaxTileColumns, to += step)
    for (int64_t j = 0; j < columns; ++j) to[j] += from[j];
}

// One thread's memory, and the state of its current box.
template <class P>
struct Space {
  typename PlaneCell<P>::Type* planes;
  typename Packing<P>::Sum* sums;
  P* panel;
  std::vector<int64_t> at;  // rows of the planes
};

template <class P>
class Gather {
 public:
  using Sum = typename Packing<P>::Sum;
  using Cell = typename PlaneCell<P>::Type;
  static constexpr bool kPairs = Packing<P>::kDepth == 2;
  static constexpr int64_t kRow = Packing<P>::kRow;

  Gather(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides, const ConvolutionTargets& t)
      : call_(call),
        g_(g),
        sides_(sides),
        t_(t),
        rows_(sides.target_channels * static_cast<int64_t>(t.variants.size())),
        depth_(sides.source_channels * t.taps()),
        sums_(call, depth_),
        width_(sums_.columns()) {
    for (int64_t k = 0; k < kSumBlock; ++k) panel_rows_.push_back(k * width_);
  }

  void run() {
    pack_weights();
    const PlaceBoxes boxes(t_, g_.batch, sides_.source_channels, kPlaces);
    const int64_t tasks = boxes.count() * g_.groups, team = call_.team().size();
    int64_t part = rows_;
    while (team > 1 && part > sums_.kernels().rows && tasks * ((rows_ + part - 1) / part) < 2 * team)
      part = (part + 1) / 2;
    const int64_t parts = rows_ == 0 ? 0 : (rows_ + part - 1) / part;
    if (tasks * parts == 0) return;
    std::vector<Space<P>> spaces = take_spaces(boxes.largest());
    call_.team().parallel_for_indexed(tasks * parts, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = task % parts * part, group = task / parts % g_.groups;
        gather_box(boxes.at(task / parts / g_.groups), group, row, std::min(rows_, row + part),
                   &spaces[static_cast<size_t>(thread)]);
      }
    });
  }

 private:
  std::vector<Space<P>> take_spaces(const PlaceBox& largest) {
    const PlaneLayout layout(t_, largest, sides_.source_channels);
    const int64_t columns = PlacePanels::most(largest, layout, width_) * width_;
    std::vector<Space<P>> spaces;
    for (int i = 0; i < call_.team().size(); ++i) {
      spaces.push_back({take<Cell>(layout.elements),
                        take<Sum>(std::min(kGatherRows, rows_) * columns),
                        take<P>(kSumBlock * kMaxTileColumns + kCopyRound),
                        {}});
      std::fill_n(spaces.back().panel, kSumBlock * kMaxTileColumns, P{});  // also beyond the last place
    }
    return spaces;
  }
  template <class T>
  T* take(int64_t count) {
    return call_.scratch().template take<T>(count);
  }

  // packed_[group, block of k, row, k]; a row is a channel of the target and a variant; k is a channel of the source
  // and a tap.
  void pack_weights() {
    constexpr int64_t kChannels = 32;  // channels of the target per task
    blocks_ = std::max<int64_t>(1, (depth_ + kSumBlock - 1) / kSumBlock);
    packed_ = take<P>(g_.groups * blocks_ * rows_ * kRow);
    const int64_t parts = (sides_.target_channels + kChannels - 1) / kChannels;
    visit_floating(sides_.weight.dtype, [&]<class From>() {
      call_.team().parallel_for(g_.groups * blocks_ * parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % parts * kChannels, last = std::min(first + kChannels, sides_.target_channels);
          for (int64_t c = first; c < last; ++c) pack_channel<From>(i / parts / blocks_, i / parts % blocks_, c);
        }
      });
    });
  }

  // Packs one block of a target channel.
  template <class From>
  void pack_channel(int64_t group, int64_t block, int64_t channel) {
    const int64_t first = block * kSumBlock, end = std::min(depth_, first + kSumBlock), taps = t_.taps();
    const From* weight = sides_.weight.as<From>() + group * g_.out_channels * g_.depth() + channel * sides_.target_step;
    P* row = packed_ + ((group * blocks_ + block) * rows_ + channel * static_cast<int64_t>(t_.variants.size())) * kRow;
    for (const auto& variant : t_.variants) {
      Cell* to = reinterpret_cast<Cell*>(row);
      for (int64_t k = first; k < end;) {
        const int64_t tap = k % taps,
                      count = variant.is_whole && sides_.source_step == taps ? end - k : std::min(taps - tap, end - k);
        const From* from = weight + k / taps * sides_.source_step;
        Cell* place = to + k - first;
        if (variant.is_whole)
          for (int64_t i = 0; i < count; ++i) place[i] = converted<Cell>(from[tap + i]);
        else
          for (int64_t i = 0; i < count; ++i)
            place[i] = converted<Cell>(from[variant.windows[static_cast<size_t>(tap + i)]]);
        k += count;
      }
      if constexpr (kPairs) pair_up(to, end - first);
      row += kRow;
    }
  }

  void gather_box(const PlaceBox& box, int64_t group, int64_t first_row, int64_t end_row, Space<P>* s) const {
    const PlaneLayout layout(t_, box, sides_.source_channels);
    const PlacePanels panels(box, layout, width_);
    const int64_t channels = sides_.source_channels;
    fill_planes(t_, box, layout, {sides_.source_size, sides_.source, group * channels, channels}, s->planes);
    s->at.clear();
    for (int64_t c = 0; c < sides_.source_channels; ++c)
      for (int64_t tap : layout.taps) s->at.push_back(c * layout.channel + tap);
    for (int64_t row = first_row; row < end_row; row += kGatherRows) {
      const int64_t rows = std::min(kGatherRows, end_row - row);
      multiply(panels, group, row, rows, *s);
      store(box, panels, group, row, rows, s->sums);
    }
  }

  void multiply(const PlacePanels& panels, int64_t group, int64_t row, int64_t rows, const Space<P>& s) const {
    for (int64_t block = 0; block < blocks_; ++block) {
      const P* a = packed_ + ((group * blocks_ + block) * rows_ + row) * kRow;
      const int64_t* at = s.at.data() + block * kSumBlock;
      const int64_t k = std::min(kSumBlock, depth_ - block * kSumBlock);
      for (int64_t panel = 0; panel < panels.count(); ++panel) {
        Sum* sums = s.sums + panel * width_;
        const int64_t step = panels.count() * width_;
        if constexpr (!kPairs)
          if (!panels.is_copied()) {
            sums_.add_rows({a, s.planes + panels.begin(panel), at, k, block == 0}, rows, sums, step);
            continue;
          }
        const PlacePanels::Piece whole{panels.is_copied() ? 0 : panels.begin(panel), width_};
        pack_panel(panels.is_copied() ? panels.pieces(panel) : std::span(&whole, 1), at, k, s.planes, s.panel);
        sums_.add_rows({a, s.panel, panel_rows_.data(), k, block == 0}, rows, sums, step);
      }
    }
  }

  // Copies are rounded up: what follows a row is the next row, or spare room.
  void pack_panel(std::span<const PlacePanels::Piece> pieces, const int64_t* at, int64_t k, const Cell* planes,
                  P* to) const {
    if constexpr (kPairs) return pack_pairs(pieces, at, k, planes, width_, to);
    for (int64_t i = 0; i < k; ++i, to += width_) {
      Cell* place = reinterpret_cast<Cell*>(to);
      for (const PlacePanels::Piece& p : pieces) {
        copy_rounded(planes + at[i] + p.at, p.count, place);
        place += p.count;
      }
    }
  }

  void store(const PlaceBox& box, const PlacePanels& panels, int64_t group, int64_t row, int64_t rows,
             const Sum* sums) const {
    const auto variants = static_cast<int64_t>(t_.variants.size());
    const int64_t step = panels.count() * width_;
    for (int64_t r = row; r < row + rows; ++r, sums += step) {
      const int64_t channel = group * sides_.target_channels + r / variants;
      const Three& first = t_.variants[static_cast<size_t>(r % variants)].first;
      store_row(box, panels, first, channel, sums);
    }
  }

  void store_row(const PlaceBox& box, const PlacePanels& panels, const Three& first, int64_t channel,
                 const Sum* sums) const {
    const Image& image = sides_.target;
    const Sum bias = bias_of<Sum>(sides_.bias, channel);
    Three at, step;
    for (size_t d = 0; d < 3; ++d) {
      at[d] = (first[d] + box.begin[d] * t_.axes[d].step) * image.step[d];
      step[d] = t_.axes[d].step * image.step[d];
    }
    visit_floating(image.dtype, [&]<class To>() {
      size_t line = 0;
      for (int64_t e = 0; e < box.entries; ++e) {
        To* to = reinterpret_cast<To*>(const_cast<std::byte*>(image.data)) + (box.entry + e) * image.batch_step +
                 channel * image.channel_step + at[0] + at[1] + at[2];
        for (int64_t a = 0; a < box.size[0]; ++a)
          for (int64_t b = 0; b < box.size[1]; ++b, ++line)
            store_line(sums + panels.line(line), bias, box.size[2], step[2], to + a * step[0] + b * step[1]);
      }
    });
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const GatherSides& sides_;
  const ConvolutionTargets& t_;
  int64_t rows_, depth_, blocks_ = 0;
  GatherSums<P> sums_;
  const int64_t width_;  // of a panel
  P* packed_ = nullptr;
  std::vector<int64_t> panel_rows_;  // rows of a copied panel
};

template <class P>
void gather(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides, const ConvolutionTargets& t) {
  if (gathers_by_units(call, sides, g.window_size())) return gather_by_units(call, g, sides, t);
  if constexpr (Packing<P>::kDepth == 1)
    if (gathers_by_rows<P>(g, sides, t)) return gather_by_rows<P>(call, g, sides, t);
  Gather<P>(call, g, sides, t).run();
}

// Elements that no window sees are just the bias.
template <class T>
void fill_unseen(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides) {
  const Image& image = sides.target;
  const Three& size = sides.target_size;
  const std::vector<T> zeros(static_cast<size_t>(size[2]));
  const int64_t channels = g.groups * sides.target_channels;
  visit_floating(image.dtype, [&]<class To>() {
    call.team().parallel_for(g.batch * channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        To* to = reinterpret_cast<To*>(const_cast<std::byte*>(image.data)) + i / channels * image.batch_step +
                 i % channels * image.channel_step;
        const T bias = bias_of<T>(sides.bias, i % channels);
        for (int64_t a = 0; a < size[0]; ++a)
          for (int64_t b = 0; b < size[1]; ++b)
            store_line(zeros.data(), bias, size[2], image.step[2], to + a * image.step[0] + b * image.step[1]);
      }
    });
  });
}

}  // namespace

template <class P>
GatherSums<P>::GatherSums(const KernelCall& call, int64_t depth)
    : kernels_(tile_kernels<P>(best_isa())),
      later_(call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add),
      chain_(convolution_chain(depth) / Packing<P>::kDepth) {}

template <class P>
void GatherSums<P>::add_tile(const GatherBlock<P>& block, int64_t rows, Sum* c, int64_t step) const {
  const auto& [a, b, at, k, first] = block;
  const bool apart = !first && later_ == TileStart::add;
  alignas(64) Sum sums[kMaxTileRows * kMaxTileColumns];
  kernels_.gather[rows - 1]({a, b, at, packed_depth<P>(k), chain_, apart ? sums : c, apart ? kMaxTileColumns : step,
                             first || apart ? TileStart::zero : later_, later_});
  if (apart) add_sums(sums, rows, kernels_.columns, c, step);
}

template <class P>
void GatherSums<P>::add_rows(const GatherBlock<P>& block, int64_t rows, Sum* c, int64_t step) const {
  GatherBlock<P> tile = block;
  const int64_t tiles = (rows + kernels_.rows - 1) / kernels_.rows;
  for (int64_t t = 0, i = 0; t < tiles; ++t) {
    const int64_t tile_rows = rows / tiles + (t < rows % tiles);
    add_tile(tile, tile_rows, c + i * step, step);
    i += tile_rows, tile.a += tile_rows * Packing<P>::kRow;
  }
}

template class GatherSums<float>;
template class GatherSums<double>;
template class GatherSums<Bf16Pair>;

int64_t convolution_chain(int64_t count) {
  int64_t chain = 32;
  while (chain < kSumBlock && chain * chain < count) chain *= 2;
  return chain;
}

template <class P>
void convolve_output(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Tensor& weight,
                     const Tensor& bias, const Image& y) {
  const GatherSides sides{x, y, g.in, g.out, g.in_channels, g.out_channels, weight, bias, g.depth(), g.window_size()};
  gather<P>(call, g, sides, output_targets(g));
}

template <class P>
void convolve_input(KernelCall& call, const ConvolutionGeometry& g, const Image& y, const Tensor& weight,
                    const Tensor& bias, const Image& x) {
  const GatherSides sides{y, x, g.out, g.in, g.out_channels, g.in_channels, weight, bias, g.window_size(), g.depth()};
  const std::vector<ConvolutionTargets> targets = input_targets(g);
  if (scatters_input(g, targets)) return scatter_input(call, g, y, weight, bias, x);
  int64_t seen = 0;
  for (const ConvolutionTargets& t : targets) seen += t.places() * static_cast<int64_t>(t.variants.size());
  if (seen < g.in[0] * g.in[1] * g.in[2]) fill_unseen<typename Packing<P>::Sum>(call, g, sides);
  for (const ConvolutionTargets& t : targets) gather<P>(call, g, sides, t);
}

#define SG_INSTANTIATE(P)                                                                                              \
  template void convolve_output<P>(KernelCall&, const ConvolutionGeometry&, const Image&, const Tensor&,               \
                                   const Tensor&, const Image&);                                                       \
  template void convolve_input<P>(KernelCall&, const ConvolutionGeometry&, const Image&, const Tensor&, const Tensor&, \
                                  const Image&);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
SG_INSTANTIATE(Bf16Pair)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
