// The gradient of a convolution's weight: sums over the places of all entries.
#include <algorithm>

#include "librun/cpu/convolution_planes.h"
#include "librun/cpu/convolution_products.h"
#include "librun/cpu/convolution_weight.h"
#include "librun/cpu/gemm_block.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kPlaces = 1024;  // of a box
constexpr int64_t kRows = 224;     // channels and taps of a task, unless one channel has more
constexpr int64_t kColumns = 128;  // channels of the output of a task

// A run of places along a line, of an entry of the box.
struct Piece {
  int64_t entry, count;
  int64_t at;  // in the planes
  int64_t y;   // in the output's image, from its first channel on
};

template <class T>
class WeightSums {
 public:
  WeightSums(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y)
      : call_(call),
        g_(g),
        x_(x),
        y_(y),
        t_(output_targets(g)),
        taps_(t_.taps()),
        most_(std::clamp<int64_t>(kRows / taps_, 1, std::max<int64_t>(g.in_channels, 1))),
        boxes_(t_, g.batch, most_, kPlaces),
        kernels_(tile_kernels<T>(best_isa())),
        later_(call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add),
        chain_(convolution_chain(g.batch * g.places())) {
    for (int64_t k = 0; k < kSumBlock; ++k) rows_of_panel_.push_back(k * kernels_.columns);
  }

  void run(const Tensor& out) {
    if (out.dtype == kTileType<T> && weighs_by_rows(g_, t_, boxes_))
      return weigh_by_rows<T>(call_, g_, x_, y_, t_, boxes_, out);
    const int64_t column_blocks = (g_.out_channels + kColumns - 1) / kColumns, team = call_.team().size();
    int64_t channels = most_;
    auto row_blocks = [&] { return (g_.in_channels + channels - 1) / channels; };
    while (team > 1 && channels > 1 && g_.groups * column_blocks * row_blocks() < 2 * team)
      channels = (channels + 1) / 2;
    std::vector<Space> spaces = take_spaces();
    call_.team().parallel_for_indexed(
        g_.groups * column_blocks * row_blocks(), 1, [&](int thread, int64_t begin, int64_t end) {
          for (int64_t task = begin; task < end; ++task) {
            const int64_t channel = task % row_blocks() * channels, rest = task / row_blocks();
            const int64_t column = rest % column_blocks * kColumns;
            sum_block({rest / column_blocks, channel, std::min(channels, g_.in_channels - channel), column,
                       std::min(kColumns, g_.out_channels - column)},
                      spaces[static_cast<size_t>(thread)], out);
          }
        });
  }

 private:
  struct Space {
    T *planes, *a, *b, *sums;
  };
  struct Block {
    int64_t group, channel, channels;  // of the input
    int64_t column, columns;           // channels of the output
  };

  std::vector<Space> take_spaces() {
    const int64_t planes = boxes_.count() == 0 ? 1 : PlaneLayout(t_, boxes_.largest(), most_).elements;
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back(
          {take(planes), take(most_ * taps_ * kPackedRow), take(kColumns * kSumBlock), take(most_ * taps_ * kColumns)});
    return spaces;
  }
  T* take(int64_t count) { return call_.scratch().template take<T>(count); }

  void sum_block(const Block& block, const Space& s, const Tensor& out) const {
    const int64_t rows = block.channels * taps_;
    std::fill_n(s.sums, rows * kColumns, T(0));
    for (int64_t i = 0; i < boxes_.count(); ++i) add_box(boxes_.at(i), block, s);
    store(block, rows, s, out);
  }

  // The sums are [channel and tap, channel of the output], the result is the other way round.
  void store(const Block& block, int64_t rows, const Space& s, const Tensor& out) const {
    const MatrixView sums{reinterpret_cast<const std::byte*>(s.sums), kTileType<T>, 1, kColumns};
    MatrixView to{out.data, out.dtype, g_.depth(), 1};
    to = to.at(block.group * g_.out_channels + block.column, block.channel * taps_);
    if (out.dtype == kTileType<T>) {
      T* place = reinterpret_cast<T*>(const_cast<std::byte*>(to.data));
      return pack_block(kernels_, sums, block.columns, rows, place, g_.depth());
    }
    pack_block(kernels_, sums, block.columns, rows, s.a, rows);
    store_block(s.a, rows, to, block.columns, rows);
  }

  void add_box(const PlaceBox& box, const Block& block, const Space& s) const {
    const PlaneLayout layout(t_, box, block.channels);
    fill_planes(t_, box, layout, g_.in, x_, block.group * g_.in_channels + block.channel, block.channels, s.planes);
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
    T* to = s.a;
    for (int64_t c = 0; c < block.channels; ++c)
      for (int64_t tap : layout.taps) {
        T* at = to;
        for (const Piece& p : pieces) {
          copy_rounded(s.planes + p.at + c * layout.channel + tap, p.count, at);
          at += p.count;
        }
        to += kPackedRow;
      }
    const int64_t rows = block.channels * taps_, tiles = (rows + kernels_.rows - 1) / kernels_.rows;
    for (int64_t j = 0; j < block.columns; j += kernels_.columns)
      for (int64_t t = 0, i = 0; t < tiles; ++t) {
        const int64_t tile_rows = rows / tiles + (t < rows % tiles);
        kernels_.gather[tile_rows - 1]({s.a + i * kPackedRow, s.b + j * kSumBlock, rows_of_panel_.data(), count, chain_,
                                        s.sums + i * kColumns + j, kColumns, later_, later_});
        i += tile_rows;
      }
  }

  // to[panel, place, channel of the output]
  void pack_columns(const std::vector<Piece>& pieces, const Block& block, T* to) const {
    const int64_t width = kernels_.columns, first = (block.group * g_.out_channels + block.column) * y_.channel_step;
    for (int64_t j = 0; j < block.columns; j += width, to += kSumBlock * width) {
      const int64_t columns = std::min(width, block.columns - j);
      T* row = to;
      for (size_t i = 0; i < pieces.size();) {
        const Piece& p = pieces[i];
        int64_t count = p.count;  // with those that lie right behind it
        for (++i; i < pieces.size() && pieces[i].y == p.y + count * y_.step[2]; ++i) count += pieces[i].count;
        MatrixView from{y_.data, y_.dtype, y_.step[2], y_.channel_step};
        from.data += (p.y + first + j * y_.channel_step) * dtype_bytes(y_.dtype);
        pack_block(kernels_, from, count, columns, row, width);
        for (int64_t k = 0; k < count && columns < width; ++k)
          std::fill(row + k * width + columns, row + (k + 1) * width, T(0));
        row += count * width;
      }
    }
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const Image &x_, &y_;
  const ConvolutionTargets t_;
  const int64_t taps_;
  const int64_t most_;  // channels of a task: boxes go by it alone
  const PlaceBoxes boxes_;
  const TileKernels<T>& kernels_;
  TileStart later_;
  const int64_t chain_;
  std::vector<int64_t> rows_of_panel_;
};

}  // namespace

template <class T>
void convolve_weight(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                     const Tensor& out) {
  WeightSums<T>(call, g, x, y).run(out);
}

template void convolve_weight<float>(KernelCall&, const ConvolutionGeometry&, const Image&, const Image&,
                                     const Tensor&);
template void convolve_weight<double>(KernelCall&, const ConvolutionGeometry&, const Image&, const Image&,
                                      const Tensor&);

}  // namespace sg::cpu
