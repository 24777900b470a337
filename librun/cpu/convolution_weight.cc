// The gradient of a convolution's weight: sums over the places of all entries.
#include <algorithm>

#include "librun/cpu/blocks.h"
#include "librun/cpu/convolution_planes.h"
#include "librun/cpu/convolution_products.h"
#include "librun/cpu/convolution_units.h"
#include "librun/cpu/convolution_weight.h"
#include "librun/cpu/convolution_weight_parts.h"
#include "librun/cpu/gemm_block.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kPlaces = 1024;  // per box
constexpr int64_t kRows = 224;     // channels and taps per task, unless one channel has more
constexpr int64_t kColumns = 128;  // channels of the output per task

// A run of places along a line, in one entry of the box.
struct Piece {
  int64_t count;
  int64_t at;  // in the planes
  int64_t y;   // in the output's image, relative to its channel
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
    const WeightParts parts(g_, sides(), call_.team().size());
    const std::vector<Space> spaces = take_spaces();
    parts.run(call_.team(),
              [&](int thread, const WeightPart& part) { sum_part(part, spaces[static_cast<size_t>(thread)], out); });
  }

 private:
  struct Space {
    Cell* planes;
    P *a, *b;
    Sum *sums, *turned;  // [channel and tap, channel of the output], and transposed
  };

  PartSides sides() const {
    const int64_t width = kernels_.columns,
                  outputs = std::clamp<int64_t>(blocks_of(g_.out_channels, width) * width, width, kColumns);
    return {.inputs = {.channels = most_, .per_channel = taps_},
            .outputs = {.channels = outputs, .whole = width, .multiple = width}};
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

  void sum_part(const WeightPart& part, const Space& s, const Tensor& out) const {
    const int64_t rows = part.inputs * taps_;
    std::fill_n(s.sums, rows * kColumns, Sum(0));
    for (int64_t i = 0; i < boxes_.count(); ++i) add_box(boxes_.at(i), part, s);
    store(part, rows, s, out);
  }

  void store(const WeightPart& part, int64_t rows, const Space& s, const Tensor& out) const {
    const TileKernels<Sum>& kernels = tile_kernels<Sum>(best_isa());
    const MatrixView sums{reinterpret_cast<const std::byte*>(s.sums), kTileType<Sum>, 1, kColumns};
    MatrixView to{out.data, out.dtype, g_.depth(), 1};
    to = to.at(part.group * g_.out_channels + part.output, part.input * taps_);
    if (out.dtype == kTileType<Sum>) {
      Sum* place = reinterpret_cast<Sum*>(const_cast<std::byte*>(to.data));
      return pack_block(kernels, sums, part.outputs, rows, place, g_.depth());
    }
    pack_block(kernels, sums, part.outputs, rows, s.turned, rows);
    store_block(s.turned, rows, to, part.outputs, rows);
  }

  void add_box(const PlaceBox& box, const WeightPart& part, const Space& s) const {
    const PlaneLayout layout(t_, box, part.inputs);
    fill_planes(t_, box, layout, {g_.in, x_, part.group * g_.in_channels + part.input, part.inputs}, s.planes);
    const int64_t places = box.places() * box.entries;
    for (int64_t first = 0; first < places; first += kSumBlock) {
      const int64_t count = std::min(kSumBlock, places - first);
      std::vector<Piece> pieces;
      for (const PlaceRun& run : place_runs(box, first, count))
        pieces.push_back(
            {run.count, layout.line(run.entry, run.place[0], run.place[1]) + run.place[2], place_in(y_, box, run)});
      add_places(pieces, count, layout, part, s);
    }
  }

  void add_places(const std::vector<Piece>& pieces, int64_t count, const PlaneLayout& layout, const WeightPart& part,
                  const Space& s) const {
    pack_columns(pieces, part, s.b);
    P* to = s.a;
    for (int64_t c = 0; c < part.inputs; ++c)
      for (int64_t tap : layout.taps) {
        Cell* at = reinterpret_cast<Cell*>(to);
        for (const Piece& p : pieces) {
          copy_rounded(s.planes + p.at + c * layout.channel + tap, p.count, at);
          at += p.count;
        }
        if constexpr (kDepth == 2) pair_up(at - count, count);
        to += kRow;
      }
    const int64_t rows = part.inputs * taps_, tiles = (rows + kernels_.rows - 1) / kernels_.rows;
    for (int64_t j = 0; j < part.outputs; j += kernels_.columns)
      for (int64_t t = 0, i = 0; t < tiles; ++t) {
        const int64_t tile_rows = rows / tiles + (t < rows % tiles);
        kernels_.gather[tile_rows - 1]({s.a + i * kRow, s.b + j * kPanelRows, rows_of_panel_.data(),
                                        packed_depth<P>(count), chain_, s.sums + i * kColumns + j, kColumns, later_,
                                        later_});
        i += tile_rows;
      }
  }

  // to[panel, place, channel of the output]
  void pack_columns(const std::vector<Piece>& pieces, const WeightPart& part, P* to) const {
    const int64_t width = kernels_.columns, first = (part.group * g_.out_channels + part.output) * y_.channel_step;
    for (int64_t j = 0; j < part.outputs; j += width, to += kPanelRows * width) {
      const int64_t columns = std::min(width, part.outputs - j);
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
