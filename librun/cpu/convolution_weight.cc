// The gradient of a convolution's weight: sums over the places of all entries.
#include <algorithm>

#include "librun/cpu/blocks.h"
#include "librun/cpu/convolution_planes.h"
#include "librun/cpu/convolution_products.h"
#include "librun/cpu/convolution_units.h"
#include "librun/cpu/convolution_weight.h"
#include "librun/cpu/gemm_block.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kPlaces = 1024;  // per box
constexpr int64_t kRows = 224;     // channels and taps per task, unless one channel has more
constexpr int64_t kColumns = 128;  // channels of the output per task

// A run of places along a line, in one entry of the box.
struct Piece {
  int64_t entry, count;
  int64_t at;  // in the planes
  int64_t y;   // in the output's image, relative to its first channel
};

template <class P>
class WeightSums {
 public:
  using Sum = typename Packing<P>::Sum;
  using Cell = typename PlaneCell<P>::Type;
  static constexpr int64_t kDepth = Packing<P>::kDepth, kRow = Packing<P>::kRow, kPanelRows = kSumBlock / kDepth;

  WeightSums(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y)
      : call_(call),
        g_(g),
        x_(x),
        y_(y),
        t_(output_targets(g)),
        taps_(t_.taps()),
        most_(std::clamp<int64_t>(kRows / taps_, 1, std::max<int64_t>(g.in_channels, 1))),
        boxes_(t_, g.batch, most_, kPlaces),
        kernels_(tile_kernels<P>(best_isa())),
        later_(call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add),
        chain_(convolution_chain(g.batch * g.places()) / kDepth) {
    for (int64_t k = 0; k < kSumBlock; ++k) rows_of_panel_.push_back(k * kernels_.columns);
  }

  void run(const Tensor& out) {
    if constexpr (kDepth == 1)
      if (out.dtype == kTileType<P> && weighs_by_rows<P>(g_, t_, boxes_))
        return weigh_by_rows<P>(call_, g_, x_, y_, t_, boxes_, out);
    const Cut cut = cut_for(call_.team().size());
    const int64_t row_blocks = blocks_of(g_.in_channels, cut.channels),
                  column_blocks = blocks_of(g_.out_channels, cut.columns);
    std::vector<Space> spaces = take_spaces();
    call_.team().parallel_for_indexed(
        g_.groups * column_blocks * row_blocks, 1, [&](int thread, int64_t begin, int64_t end) {
          for (int64_t task = begin; task < end; ++task) {
            const int64_t channel = task % row_blocks * cut.channels, rest = task / row_blocks;
            const int64_t column = rest % column_blocks * cut.columns;
            sum_block({rest / column_blocks, channel, std::min(cut.channels, g_.in_channels - channel), column,
                       std::min(cut.columns, g_.out_channels - column)},
                      spaces[static_cast<size_t>(thread)], out);
          }
        });
  }

 private:
  struct Space {
    Cell* planes;
    P *a, *b;
    Sum *sums, *turned;  // [channel and tap, channel of the output], and transposed
  };
  struct Block {
    int64_t group, channel, channels;  // of the input
    int64_t column, columns;           // channels of the output
  };

  struct Cut {
    int64_t channels, columns;  // per task
  };

  // As many tasks as threads, or enough that an incomplete last round does not matter. Cutting one side means packing
  // the other once per part, so the longer side is cut.
  Cut cut_for(int64_t team) const {
    const int64_t width = kernels_.columns;
    Cut cut{most_, std::clamp<int64_t>(blocks_of(g_.out_channels, width) * width, width, kColumns)};
    auto tasks = [&] {
      return g_.groups * blocks_of(g_.in_channels, cut.channels) * blocks_of(g_.out_channels, cut.columns);
    };
    while (tasks() % team != 0 && tasks() < 2 * team && (cut.channels > 1 || cut.columns > width)) {
      const bool columns = cut.columns > width && (cut.channels == 1 || cut.channels * taps_ <= cut.columns);
      if (columns) cut.columns = blocks_of(cut.columns, 2 * width) * width;
      else cut.channels = (cut.channels + 1) / 2;
    }
    return cut;
  }

  std::vector<Space> take_spaces() {
    const int64_t planes = boxes_.count() == 0 ? 1 : PlaneLayout(t_, boxes_.largest(), most_).elements;
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back({take<Cell>(planes), take<P>(most_ * taps_ * kRow), take<P>(kColumns * kPanelRows),
                        take<Sum>(most_ * taps_ * kColumns), take<Sum>(most_ * taps_ * kColumns)});
    return spaces;
  }
  template <class T>
  T* take(int64_t count) {
    return call_.scratch().template take<T>(count);
  }

  void sum_block(const Block& block, const Space& s, const Tensor& out) const {
    const int64_t rows = block.channels * taps_;
    std::fill_n(s.sums, rows * kColumns, Sum(0));
    for (int64_t i = 0; i < boxes_.count(); ++i) add_box(boxes_.at(i), block, s);
    store(block, rows, s, out);
  }

  void store(const Block& block, int64_t rows, const Space& s, const Tensor& out) const {
    const TileKernels<Sum>& kernels = tile_kernels<Sum>(best_isa());
    const MatrixView sums{reinterpret_cast<const std::byte*>(s.sums), kTileType<Sum>, 1, kColumns};
    MatrixView to{out.data, out.dtype, g_.depth(), 1};
    to = to.at(block.group * g_.out_channels + block.column, block.channel * taps_);
    if (out.dtype == kTileType<Sum>) {
      Sum* place = reinterpret_cast<Sum*>(const_cast<std::byte*>(to.data));
      return pack_block(kernels, sums, block.columns, rows, place, g_.depth());
    }
    pack_block(kernels, sums, block.columns, rows, s.turned, rows);
    store_block(s.turned, rows, to, block.columns, rows);
  }

  void add_box(const PlaceBox& box, const Block& block, const Space& s) const {
    const PlaneLayout layout(t_, box, block.channels);
    fill_planes(t_, box, layout, {g_.in, x_, block.group * g_.in_channels + block.channel, block.channels}, s.planes);
    std::vector<Piece> pieces;
    int64_t held = 0;
    for (int64_t e = 0; e < box.entries; ++e)
      for (int64_t a = 0; a < box.size[0]; ++a)
        for (int64_t b = 0; b < box.size[1]; ++b)
          for (int64_t c = 0, count = 0; c < box.size[2]; c += count) {
            count = std::min(box.size[2] - c, kSumBlock - held);
            const int64_t y = (box.entry + e) * y_.batch_step + (box.begin[0] + a) * y_.step[0] +
                              (box.begin[1] + b) * y_.step[1] + (box.begin[2] + c) * y_.step[2];
            pieces.push_back({e, count, layout.line(e, a, b) + c, y});
            if ((held += count) < kSumBlock) continue;
            add_places(pieces, held, layout, block, s);
            pieces.clear(), held = 0;
          }
    if (held > 0) add_places(pieces, held, layout, block, s);
  }

  void add_places(const std::vector<Piece>& pieces, int64_t count, const PlaneLayout& layout, const Block& block,
                  const Space& s) const {
    pack_columns(pieces, block, s.b);
    P* to = s.a;
    for (int64_t c = 0; c < block.channels; ++c)
      for (int64_t tap : layout.taps) {
        Cell* at = reinterpret_cast<Cell*>(to);
        for (const Piece& p : pieces) {
          copy_rounded(s.planes + p.at + c * layout.channel + tap, p.count, at);
          at += p.count;
        }
        if constexpr (kDepth == 2) pair_up(at - count, count);
        to += kRow;
      }
    const int64_t rows = block.channels * taps_, tiles = (rows + kernels_.rows - 1) / kernels_.rows;
    for (int64_t j = 0; j < block.columns; j += kernels_.columns)
      for (int64_t t = 0, i = 0; t < tiles; ++t) {
        const int64_t tile_rows = rows / tiles + (t < rows % tiles);
        kernels_.gather[tile_rows - 1]({s.a + i * kRow, s.b + j * kPanelRows, rows_of_panel_.data(),
                                        packed_depth<P>(count), chain_, s.sums + i * kColumns + j, kColumns, later_,
                                        later_});
        i += tile_rows;
      }
  }

  // to[panel, place, channel of the output]
  void pack_columns(const std::vector<Piece>& pieces, const Block& block, P* to) const {
    const int64_t width = kernels_.columns, first = (block.group * g_.out_channels + block.column) * y_.channel_step;
    for (int64_t j = 0; j < block.columns; j += width, to += kPanelRows * width) {
      const int64_t columns = std::min(width, block.columns - j);
      int64_t k = 0;
      for (size_t i = 0; i < pieces.size();) {
        const Piece& p = pieces[i];
        int64_t count = p.count;  // including those that follow immediately
        for (++i; i < pieces.size() && pieces[i].y == p.y + count * y_.step[2]; ++i) count += pieces[i].count;
        MatrixView from{y_.data, y_.dtype, y_.step[2], y_.channel_step};
        from.data += (p.y + first + j * y_.channel_step) * dtype_bytes(y_.dtype);
        append_places(from, k, count, columns, to);
        k += count;
      }
    }
  }

  // Appends places [k, k + count) to a panel; the first half of a pair may be there already.
  void append_places(MatrixView from, int64_t k, int64_t count, int64_t columns, P* to) const {
    const int64_t width = kernels_.columns;
    if constexpr (kDepth == 2)
      if (k % 2 != 0) {
        for (int64_t j = 0; j < columns; ++j)
          to[k / 2 * width + j].second = reinterpret_cast<const BF16*>(from.at(0, j).data)->bits;
        from = from.at(1, 0), ++k, --count;
      }
    P* row = to + k / kDepth * width;
    pack_right(kernels_, from, count, columns, row, width);
    for (int64_t i = 0; i < packed_depth<P>(count) && columns < width; ++i)
      std::fill(row + i * width + columns, row + (i + 1) * width, P{});
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const Image &x_, &y_;
  const ConvolutionTargets t_;
  const int64_t taps_;
  const int64_t most_;  // channels per task: only this determines the boxes
  const PlaceBoxes boxes_;
  const TileKernels<P>& kernels_;
  TileStart later_;
  const int64_t chain_;
  std::vector<int64_t> rows_of_panel_;
};

}  // namespace

template <class P>
void convolve_weight(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                     const Tensor& out) {
  if (weighs_by_units(call, g, x, y, out)) return weigh_by_units(call, g, x, y, out);
  WeightSums<P>(call, g, x, y).run(out);
}

#define SG_INSTANTIATE(P) \
  template void convolve_weight<P>(KernelCall&, const ConvolutionGeometry&, const Image&, const Image&, const Tensor&);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
SG_INSTANTIATE(Bf16Pair)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
