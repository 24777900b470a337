// The gradient of a weight with places as rows: [channel, (channel, tap)] = [channel, place] @ [place, (channel, tap)].
#include <algorithm>

#include "librun/cpu/convolution_products.h"
#include "librun/cpu/convolution_rows.h"
#include "librun/cpu/convolution_weight.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

// A part of the result that one thread adds to: channels of the output, and a block of columns.
struct Part {
  int64_t channel, channels;
  int64_t block;
};

// Places side by side in the output's image.
struct Run {
  int64_t at, count;
};

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
        rows_(call, t, boxes.largest(), g.in_channels, kSumBlock),
        kernels_(tile_kernels<T>(best_isa())),
        later_(call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add),
        chain_(convolution_chain(g.batch * g.places())),
        packed_(call.scratch().template take<T>(g.out_channels * kPackedRow)) {
    for (int64_t k = 0; k < kSumBlock; ++k) rows_of_block_.push_back(k * kPackedRow);
  }

  void run(const Tensor& out) {
    for (int64_t group = 0; group < g_.groups; ++group) {
      T* sums = out.as<T>() + group * g_.out_channels * g_.depth();
      std::fill_n(sums, g_.out_channels * g_.depth(), T(0));
      for (int64_t i = 0; i < boxes_.count(); ++i) {
        const PlaceBox box = boxes_.at(i);
        const int64_t places = box.places() * box.entries;
        for (int64_t first = 0; first < places; first += kSumBlock)
          add_places(box, group, first, std::min(kSumBlock, places - first), sums);
      }
    }
  }

 private:
  void add_places(const PlaceBox& box, int64_t group, int64_t first, int64_t count, T* sums) {
    rows_.fill(box, g_.in, x_, group * g_.in_channels, first, count);
    pack_channels(box, group, first, count);
    const int64_t team = call_.team().size();
    int64_t channels = g_.out_channels;
    auto parts = [&] { return (g_.out_channels + channels - 1) / channels; };
    while (team > 1 && channels > kernels_.rows && rows_.blocks() * parts() < 2 * team) channels = (channels + 1) / 2;
    call_.team().parallel_for(rows_.blocks() * parts(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t channel = task % parts() * channels;
        add_part({channel, std::min(channels, g_.out_channels - channel), task / parts()}, count, sums);
      }
    });
  }

  // packed_[channel of the output, place]
  void pack_channels(const PlaceBox& box, int64_t group, int64_t first, int64_t count) {
    const std::vector<Run> runs = runs_of(box, first, count);
    call_.team().parallel_for(g_.out_channels, 16, [&](int64_t begin, int64_t end) {
      visit_floating(y_.dtype, [&]<class From>() {
        for (int64_t channel = begin; channel < end; ++channel) {
          const From* from =
              reinterpret_cast<const From*>(y_.data) + (group * g_.out_channels + channel) * y_.channel_step;
          T* to = packed_ + channel * kPackedRow;
          for (const Run& run : runs)
            for (int64_t i = 0; i < run.count; ++i)
              *to++ = static_cast<T>(static_cast<Compute<From>>(from[run.at + i * y_.step[2]]));
        }
      });
    });
  }

  // Lines that lie one behind the other are one run.
  std::vector<Run> runs_of(const PlaceBox& box, int64_t first, int64_t count) const {
    std::vector<Run> runs;
    for (const PlaceRun& p : place_runs(box, first, count)) {
      int64_t at = (box.entry + p.entry) * y_.batch_step;
      for (size_t d = 0; d < 3; ++d) at += (box.begin[d] + p.place[d]) * y_.step[d];
      const bool goes_on = !runs.empty() && at == runs.back().at + runs.back().count * y_.step[2];
      if (goes_on) runs.back().count += p.count;
      else runs.push_back({at, p.count});
    }
    return runs;
  }

  void add_part(const Part& part, int64_t count, T* sums) const {
    const int64_t first = part.block * kSumBlock, columns = std::min(kSumBlock, g_.depth() - first);
    const int64_t tiles = (part.channels + kernels_.rows - 1) / kernels_.rows;
    for (int64_t j = 0; j < columns; j += kernels_.columns)
      for (int64_t t = 0, i = part.channel; t < tiles; ++t) {
        const int64_t rows = part.channels / tiles + (t < part.channels % tiles);
        add_tile(i, rows, rows_.block(part.block) + j, count, sums + i * g_.depth() + first + j,
                 std::min<int64_t>(kernels_.columns, columns - j));
        i += rows;
      }
  }

  // c += packed_[channel, place] @ b[place, column]; beside c where the tile has columns that c has not.
  void add_tile(int64_t channel, int64_t rows, const T* b, int64_t count, T* c, int64_t columns) const {
    const T* a = packed_ + channel * kPackedRow;
    const int64_t* at = rows_of_block_.data();
    if (columns == kernels_.columns)
      return kernels_.gather[rows - 1]({a, b, at, count, chain_, c, g_.depth(), later_, later_});
    alignas(64) T edge[kMaxTileRows * kMaxTileColumns] = {};
    for (int64_t i = 0; i < rows; ++i) std::copy_n(c + i * g_.depth(), columns, edge + i * kMaxTileColumns);
    kernels_.gather[rows - 1]({a, b, at, count, chain_, edge, kMaxTileColumns, later_, later_});
    for (int64_t i = 0; i < rows; ++i) std::copy_n(edge + i * kMaxTileColumns, columns, c + i * g_.depth());
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const Image &x_, &y_;
  const PlaceBoxes& boxes_;
  PlaceRows<T> rows_;
  const TileKernels<T>& kernels_;
  const TileStart later_;
  const int64_t chain_;
  T* packed_;
  std::vector<int64_t> rows_of_block_;
};

}  // namespace

// By what both ways take for a channel of the input and a tap beside the products, in multiply-adds (measured with
// vectors of 16 floats). As rows places are copied in small runs, and the result is added to once a block. Else lines
// are copied for each block of columns, the output's channels for each block of rows, and the result is turned.
bool weighs_by_rows(const ConvolutionGeometry& g, const ConvolutionTargets& t, const PlaceBoxes& boxes) {
  if (boxes.count() * g.in_channels == 0) return false;
  const PlaceBox box = boxes.largest();
  const int64_t places = box.places() * box.entries, channels = g.out_channels;
  const int64_t lines = 64 / std::clamp<int64_t>(box.size[2], 1, 16) * ((channels + 127) / 128);
  const int64_t turned = 15 * channels / std::min<int64_t>(g.in_channels * t.taps(), 224);
  return 40 * places + 8 * channels * ((places + kSumBlock - 1) / kSumBlock) <
         places * (lines + turned) + 20 * channels;
}

template <class T>
void weigh_by_rows(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                   const ConvolutionTargets& t, const PlaceBoxes& boxes, const Tensor& out) {
  WeightRows<T>(call, g, x, y, boxes, t).run(out);
}

#define SG_INSTANTIATE(T)                                                                             \
  template void weigh_by_rows<T>(KernelCall&, const ConvolutionGeometry&, const Image&, const Image&, \
                                 const ConvolutionTargets&, const PlaceBoxes&, const Tensor&);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
