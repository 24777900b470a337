// The gradient of a weight with places as rows: [channel, (channel, tap)] = [channel, place] @ [place, (channel, tap)].
#include <algorithm>

#include "librun/cpu/blocks.h"
#include "librun/cpu/convolution_products.h"
#include "librun/cpu/convolution_rows.h"
#include "librun/cpu/convolution_weight.h"
#include "librun/cpu/convolution_weight_parts.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kColumns = 288;  // per task, unless one channel has more: nine panels, also with 3x3 windows

template <class T>
class WeightRows {
 public:
  WeightRows(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y, const PlaceBoxes& boxes,
             const ConvolutionTargets& t)
      : call_(call),
        g_(g),
        x_(x),
        y_(y),
        boxes_(boxes),
        taps_(t.taps()),
        rows_(t, boxes.largest()),
        kernels_(tile_kernels<T>(best_isa())),
        later_(call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add),
        chain_(convolution_chain(g.batch * g.places())) {
    for (int64_t k = 0; k < kSumBlock; ++k) rows_of_block_.push_back(k * kPackedRow);
  }

  void run(const Tensor& out) const {
    const WeightParts parts(g_, sides(), call_.team().size());
    const std::vector<Space> spaces = take_spaces(parts);
    parts.run(call_.team(),
              [&](int thread, const WeightPart& part) { sum_part(part, spaces[static_cast<size_t>(thread)], out); });
  }

 private:
  struct Space {
    T *planes, *places, *outputs;  // packed places (B), and packed channels of the output (A)
  };
  PartSides sides() const {
    const int64_t inputs = std::clamp<int64_t>(kColumns / taps_, 1, std::max<int64_t>(g_.in_channels, 1));
    return {.inputs = {.channels = inputs, .per_channel = taps_},
            .outputs = {.channels = std::max<int64_t>(g_.out_channels, 1), .whole = kernels_.rows},
            .cuts_inputs_alone = false};
  }

  std::vector<Space> take_spaces(const WeightParts& parts) const {
    auto take = [&](int64_t count) { return call_.scratch().template take<T>(count); };
    const int64_t places = std::min(kSumBlock, boxes_.largest().places() * boxes_.largest().entries);
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back({take(rows_.planes_size()),
                        take(blocks_of(parts.inputs() * taps_, kSumBlock) * places * kPackedRow),
                        take(parts.outputs() * kPackedRow)});
    return spaces;
  }

  void sum_part(const WeightPart& part, const Space& s, const Tensor& out) const {
    T* sums = out.as<T>() + (part.group * g_.out_channels + part.output) * g_.depth() + part.input * taps_;
    for (int64_t i = 0; i < part.outputs; ++i) std::fill_n(sums + i * g_.depth(), part.inputs * taps_, T(0));
    for (int64_t i = 0; i < boxes_.count(); ++i) {
      const PlaceBox box = boxes_.at(i);
      const int64_t places = box.places() * box.entries;
      for (int64_t first = 0; first < places; first += kSumBlock)
        add_places(box, part, first, std::min(kSumBlock, places - first), s, sums);
    }
  }

  void add_places(const PlaceBox& box, const WeightPart& part, int64_t first, int64_t count, const Space& s,
                  T* sums) const {
    const int64_t columns = part.inputs * taps_, block_step = count * kPackedRow;
    rows_.pack({box, first, count}, {g_.in, x_, part.group * g_.in_channels + part.input, part.inputs}, s.planes,
               {s.places, block_step});
    pack_outputs(image_runs(y_, box, first, count), part, s.outputs);
    const int64_t tiles = blocks_of(part.outputs, kernels_.rows);
    for (int64_t j = 0; j < columns; j += kernels_.columns)
      for (int64_t t = 0, i = 0; t < tiles; ++t) {
        const int64_t rows = part.outputs / tiles + (t < part.outputs % tiles);
        add_tile(s.outputs + i * kPackedRow, rows, s.places + j / kSumBlock * block_step + j % kSumBlock, count,
                 sums + i * g_.depth() + j, std::min<int64_t>(kernels_.columns, columns - j));
        i += rows;
      }
  }

  // c += a[channel of the output, place] @ b[place, column]; through a buffer if the tile has more columns than c.
  void add_tile(const T* a, int64_t rows, const T* b, int64_t count, T* c, int64_t columns) const {
    const int64_t* at = rows_of_block_.data();
    if (columns == kernels_.columns)
      return kernels_.gather[rows - 1]({a, b, at, count, chain_, c, g_.depth(), later_, later_});
    alignas(64) T edge[kMaxTileRows * kMaxTileColumns] = {};
    for (int64_t i = 0; i < rows; ++i) std::copy_n(c + i * g_.depth(), columns, edge + i * kMaxTileColumns);
    kernels_.gather[rows - 1]({a, b, at, count, chain_, edge, kMaxTileColumns, later_, later_});
    for (int64_t i = 0; i < rows; ++i) std::copy_n(edge + i * kMaxTileColumns, columns, c + i * g_.depth());
  }

  // to[channel of the output, place]
  void pack_outputs(const std::vector<ImageRun>& runs, const WeightPart& part, T* to) const {
    visit_floating(y_.dtype, [&]<class From>() {
      for (int64_t i = 0; i < part.outputs; ++i, to += kPackedRow) {
        const From* from =
            reinterpret_cast<const From*>(y_.data) + (part.group * g_.out_channels + part.output + i) * y_.channel_step;
        T* place = to;
        for (const ImageRun& run : runs) {
          copy_line(from + run.at, y_.step[2], run.count, place);
          place += run.count;
        }
      }
    });
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const Image &x_, &y_;
  const PlaceBoxes& boxes_;
  const int64_t taps_;
  const PlaceRows<T> rows_;
  const TileKernels<T>& kernels_;
  const TileStart later_;
  const int64_t chain_;
  std::vector<int64_t> rows_of_block_;
};

}  // namespace

// Compares the costs of both ways per channel of the input and tap besides the products, in multiply-adds (measured
// with vectors of 16 floats). With rows, places are copied in small runs or transposed, the result is updated once per
// block, and the last panel may have few columns. Otherwise lines are copied for each block of columns, and the
// output's channels and the result are transposed for each block of rows.
template <class T>
bool weighs_by_rows(const ConvolutionGeometry& g, const ConvolutionTargets& t, const PlaceBoxes& boxes) {
  if (boxes.count() * g.in_channels == 0) return false;
  const PlaceBox box = boxes.largest();
  const int64_t places = box.places() * box.entries, channels = g.out_channels, columns = g.in_channels * t.taps();
  const int64_t width = tile_kernels<T>(best_isa()).columns, empty = blocks_of(columns, width) * width - columns;
  const int64_t by_rows =
      places * ((t.taps() > 1 ? 40 : 16) + channels * empty / columns) + 8 * channels * blocks_of(places, kSumBlock);
  const int64_t lines = 64 / std::clamp<int64_t>(box.size[2], 1, 16) * blocks_of(channels, 128);
  const int64_t turned = 15 * channels / std::min<int64_t>(columns, 224);
  return by_rows < places * (lines + turned) + 20 * channels;
}

template <class T>
void weigh_by_rows(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                   const ConvolutionTargets& t, const PlaceBoxes& boxes, const Tensor& out) {
  WeightRows<T>(call, g, x, y, boxes, t).run(out);
}

#define SG_INSTANTIATE(T)                                                                                    \
  template bool weighs_by_rows<T>(const ConvolutionGeometry&, const ConvolutionTargets&, const PlaceBoxes&); \
  template void weigh_by_rows<T>(KernelCall&, const ConvolutionGeometry&, const Image&, const Image&,        \
                                 const ConvolutionTargets&, const PlaceBoxes&, const Tensor&);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
