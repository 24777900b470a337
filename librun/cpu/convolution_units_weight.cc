// The gradient of a weight on matrix units: [(channel, tap), channel of the output] = [(channel, tap), place] @ [place,
// channel of the output]. Adjacent places are a line of a left-hand tile where they lie in the planes, as taps of the
// last axes are planes of their own.
#include <algorithm>
#include <vector>

#include "librun/cpu/blocks.h"
#include "librun/cpu/convolution_planes.h"
#include "librun/cpu/convolution_units.h"
#include "librun/cpu/convolution_weight_parts.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/unit_tiles.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

constexpr int64_t kPlacesOfBox = 1024;
constexpr int64_t kMostLines = 640;          // channels and taps per task, unless 16 channels have more
constexpr int64_t kMostOfFewChannels = 196;  // taps
constexpr int64_t kMostOutputs = 256;        // channels of the output per task
constexpr int64_t kTileBytes = kUnitTile * sizeof(uint16_t);

int64_t rounded_up(int64_t count) { return blocks_of(count, kUnitLines) * kUnitLines; }

// Lines of a tile, `step` elements apart.
SG_CLONES void round_tile(const float* from, uint16_t* to, int64_t step) {
  for (int64_t i = 0; i < kUnitLines; ++i, from += kUnitLines, to += step)
    for (int64_t j = 0; j < kUnitLines; ++j) to[j] = BF16(from[j]).bits;
}

// Whether the places of a box's entries are all contiguous, or those of one entry: the former means more planes to fill
// and fewer places that fill up steps.
bool joins_entries(const ConvolutionGeometry& g) {
  const int64_t places = g.places();
  return g.batch > 1 && 2 * blocks_of(places, kUnitDepth) * kUnitDepth > 3 * places;
}

ConvolutionTargets weight_targets(const ConvolutionGeometry& g) {
  const ConvolutionTargets t = output_targets(g);
  if (joins_entries(g)) return with_taps_apart(t, 3);
  int first = 0;  // axis along which anything moves
  while (first < 2 && t.axes[static_cast<size_t>(first)].places == 1 && g.window[static_cast<size_t>(first)] == 1)
    ++first;
  const ConvolutionAxis& axis = t.axes[static_cast<size_t>(first)];
  const bool is_wide = axis.reach > axis.places / 4 + 8;  // a box would fill many lines for each that it uses
  return with_taps_apart(t, 2 - first + (is_wide ? 1 : 0));
}

// What the steps of a box read.
class Steps {
 public:
  struct Tail {  // the places of a step that has fewer than others: copied, with zeros after them
    int64_t from, count, to;
  };

  Steps(const ConvolutionTargets& t, const PlaceBox& box, bool joined)
      : layout_(t, box, 1, PlaneLayout::Entries::inside), taps_(static_cast<int64_t>(layout_.taps.size())) {
    const int64_t runs = joined ? 1 : box.entries, places = box.places() * box.entries / runs;
    const int64_t whole = places / kUnitDepth, rest = places % kUnitDepth;
    for (int64_t r = 0; r < runs; ++r)
      for (int64_t p = 0; p < places; p += kUnitDepth)
        counts_.push_back({r * places + p, std::min(kUnitDepth, places - p)});
    int64_t copies = layout_.channel;
    for (int64_t tap : layout_.taps)
      for (int64_t r = 0; r < runs; ++r) {
        const int64_t run = tap + r * layout_.entry;
        for (int64_t i = 0; i < whole; ++i) at_.push_back((run + i * kUnitDepth) * int64_t{sizeof(BF16)});
        if (rest == 0) continue;
        at_.push_back(copies * int64_t{sizeof(BF16)});
        tails_.push_back({run + whole * kUnitDepth, rest, copies});
        copies += kUnitDepth;
      }
    row_ = row_stride(copies, sizeof(BF16));
  }

  // Of the planes and copies of any box within `largest`; a smaller one may have copies where it has none.
  static int64_t most_elements(const ConvolutionTargets& t, const PlaceBox& largest, bool joined, int64_t channels) {
    PlaneLayout layout(t, largest, 1, PlaneLayout::Entries::inside);
    const int64_t copies = std::ssize(layout.taps) * (joined ? 1 : largest.entries) * kUnitDepth;
    layout.move_apart(row_stride(layout.channel + copies, sizeof(BF16)), channels);
    return layout.elements;
  }

  struct Places {
    int64_t first, count;
  };
  int64_t count() const { return static_cast<int64_t>(counts_.size()); }
  const std::vector<Places>& places() const { return counts_; }                // by step
  const int64_t* at(int64_t tap) const { return at_.data() + tap * count(); }  // in bytes, by step
  const std::vector<Tail>& tails() const { return tails_; }
  int64_t row() const { return row_; }  // elements between channels
  PlaneLayout layout(int64_t channels) const {
    PlaneLayout out = layout_;
    out.move_apart(row_, channels);
    return out;
  }

 private:
  const PlaneLayout layout_;
  const int64_t taps_;
  std::vector<Places> counts_;
  std::vector<int64_t> at_;
  std::vector<Tail> tails_;
  int64_t row_ = 0;
};

class UnitWeights {
 public:
  UnitWeights(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y)
      : call_(call),
        g_(g),
        x_(x),
        y_(y),
        joined_(joins_entries(g)),
        t_(weight_targets(g)),
        taps_(t_.taps()),
        most_(std::clamp(kMostLines / taps_ / kUnitLines * kUnitLines, kUnitLines,
                         std::max(kUnitLines, rounded_up(g.in_channels)))),
        boxes_(t_, g.batch, most_ / 2, kPlacesOfBox) {}

  void run(const Tensor& out) const {
    const WeightParts parts(g_, sides(), call_.team().size());
    if (parts.count() == 0) return;
    const std::vector<Space> spaces = take_spaces(parts);
    parts.run(call_.team(),
              [&](int thread, const WeightPart& part) { sum_part(part, spaces[static_cast<size_t>(thread)], out); });
  }

 private:
  struct Space {
    BF16* planes;      // [channel of the input, positions]
    uint16_t* places;  // [tile of the output's channels, step]: tiles
    float* sums;       // [pair of line tiles, pair of the output's tiles]: four tiles
  };

  PartSides sides() const {
    const int64_t fitting = kMostLines * kMostOutputs / (most_ * taps_) / kUnitLines * kUnitLines;  // of sums
    const int64_t outputs =
        std::min(rounded_up(std::max<int64_t>(g_.out_channels, 1)), std::clamp(fitting, kUnitLines, kMostOutputs));
    return {.inputs = {.channels = most_, .whole = kUnitLines, .multiple = kUnitLines},
            .outputs = {.channels = outputs, .whole = kUnitLines, .multiple = kUnitLines}};
  }

  std::vector<Space> take_spaces(const WeightParts& parts) const {
    auto take = [&]<class T>(int64_t count) { return call_.scratch().template take<T>(count); };
    const PlaceBox largest = boxes_.largest();
    const int64_t planes = Steps::most_elements(t_, largest, joined_, rounded_up(parts.inputs())),
                  places = blocks_of(parts.outputs(), kUnitLines) * Steps(t_, largest, joined_).count() * kUnitTile;
    const int64_t lines = rounded_up(parts.inputs()) / kUnitLines * taps_;
    const int64_t sums = blocks_of(lines, 2) * blocks_of(blocks_of(parts.outputs(), kUnitLines), 2) * 4 * kUnitSums;
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back({take.template operator()<BF16>(planes), take.template operator()<uint16_t>(places),
                        take.template operator()<float>(sums)});
    return spaces;
  }

  void sum_part(const WeightPart& part, const Space& s, const Tensor& out) const {
    for (int64_t i = 0; i < boxes_.count(); ++i) add_box(boxes_.at(i), part, i > 0, s);
    if (boxes_.count() > 0) return store(part, s.sums, out);
    for (int64_t o = 0; o < part.outputs; ++o)
      std::fill_n(out.as<BF16>() + (part.group * g_.out_channels + part.output + o) * g_.depth() + part.input * taps_,
                  part.inputs * taps_, BF16());
  }

  void add_box(const PlaceBox& box, const WeightPart& part, bool add, const Space& s) const {
    const Steps steps(t_, box, joined_);
    const PlaneLayout layout = steps.layout(rounded_up(part.inputs));
    fill_planes(t_, box, layout, {g_.in, x_, part.group * g_.in_channels + part.input, part.inputs}, s.planes);
    for (int64_t c = 0; c < part.inputs; ++c)
      for (const Steps::Tail& tail : steps.tails()) {
        BF16* row = s.planes + c * steps.row();
        std::copy_n(row + tail.from, tail.count, row + tail.to);
        std::fill_n(row + tail.to + tail.count, kUnitDepth - tail.count, BF16());
      }
    pack_places(box, steps, part, s.places);
    multiply(steps, part, add, s);
  }

  void multiply(const Steps& steps, const WeightPart& part, bool add, const Space& s) const {
    const int64_t lines = blocks_of(part.inputs, kUnitLines) * taps_, outputs = blocks_of(part.outputs, kUnitLines),
                  tile_size = steps.count() * kUnitTile;
    std::vector<int64_t> at;
    for (int64_t i = 0; i < steps.count(); ++i) at.push_back(i * kTileBytes);
    auto channels_of = [&](int64_t line) { return s.planes + line / taps_ * kUnitLines * steps.row(); };
    float* sums = s.sums;
    const UnitTiles tiles;
    for (int64_t i = 0; i < lines; i += 2) {
      const int64_t other = std::min(i + 1, lines - 1);
      const UnitRows left{{channels_of(i), channels_of(other)},
                          {steps.at(i % taps_), steps.at(other % taps_)},
                          steps.row() * int64_t{sizeof(BF16)},
                          i + 1 < lines ? 2 : 1};
      for (int64_t j = 0; j < outputs; j += 2, sums += 4 * kUnitSums) {
        const uint16_t* first = s.places + j * tile_size;
        multiply_rows(left, {{first, first + tile_size}, {at.data(), at.data()}, 64, j + 1 < outputs ? 2 : 1},
                      steps.count(), add, UnitPlaces::one_by_one(sums));
      }
    }
  }

  void pack_places(const PlaceBox& box, const Steps& steps, const WeightPart& part, uint16_t* to) const {
    const auto* y =
        reinterpret_cast<const BF16*>(y_.data) + (part.group * g_.out_channels + part.output) * y_.channel_step;
    BF16 copy[kUnitLines * kUnitDepth];
    for (int64_t i = 0; i < steps.count(); ++i) {
      const Steps::Places places = steps.places()[static_cast<size_t>(i)];
      const std::vector<ImageRun> runs = image_runs(y_, box, places.first, places.count);
      for (int64_t j = 0; j < part.outputs; j += kUnitLines) {
        const int64_t channels = std::min(kUnitLines, part.outputs - j);
        const BF16* from = y + j * y_.channel_step;
        MatrixView view{reinterpret_cast<const std::byte*>(from + runs[0].at), DType::bf16, y_.channel_step,
                        y_.step[2]};
        if (runs.size() > 1) {
          view = {reinterpret_cast<const std::byte*>(copy), DType::bf16, kUnitDepth, 1};
          for (int64_t c = 0; c < channels; ++c, from += y_.channel_step) {
            BF16* line = copy + c * kUnitDepth;
            for (const ImageRun& run : runs) {
              copy_line(from + run.at, y_.step[2], run.count, line);
              line += run.count;
            }
          }
        }
        pack_parts(Units::whole, TileForm::pairs, view, channels, places.count, LineScales(),
                   to + (j / kUnitLines * steps.count() + i) * kUnitTile, kUnitTile);
      }
    }
  }

  // out[channel of the output, channel, tap] from sums of [channel, channel of the output] by tap
  void store(const WeightPart& part, const float* sums, const Tensor& out) const {
    const int64_t outputs = blocks_of(part.outputs, kUnitLines), pairs = blocks_of(outputs, 2);
    std::vector<uint16_t> rounded(static_cast<size_t>(taps_ * kUnitSums));  // [channel, tap, channel of the output]
    for (int64_t c = 0; c < part.inputs; c += kUnitLines)
      for (int64_t j = 0; j < outputs; ++j) {
        for (int64_t tap = 0; tap < taps_; ++tap) {
          const int64_t line = c / kUnitLines * taps_ + tap;
          round_tile(sums + ((line / 2 * pairs + j / 2) * 4 + line % 2 * 2 + j % 2) * kUnitSums,
                     rounded.data() + tap * kUnitLines, taps_ * kUnitLines);
        }
        store_turned(rounded.data(), part, c, j * kUnitLines, out);
      }
  }

  void store_turned(const uint16_t* from, const WeightPart& part, int64_t input, int64_t output,
                    const Tensor& out) const {
    const int64_t all = std::min(kUnitLines, part.inputs - input) * taps_,
                  outputs = std::min(kUnitLines, part.outputs - output);
    uint16_t* to[kUnitLines];
    for (int64_t i = 0; i < outputs; ++i)
      to[i] = out.as<uint16_t>() + (part.group * g_.out_channels + part.output + output + i) * g_.depth() +
              (part.input + input) * taps_;
    alignas(64) uint16_t tile[kUnitTile];
    for (int64_t i = 0; i < all; i += kUnitDepth) {
      const int64_t count = std::min(kUnitDepth, all - i);
      const MatrixView view{reinterpret_cast<const std::byte*>(from + i * kUnitLines), DType::bf16, 1, kUnitLines};
      pack_parts(Units::whole, TileForm::lines, view, outputs, count, LineScales(), tile, kUnitTile);
      copy_lines(tile, kUnitDepth, count, {to, static_cast<size_t>(outputs)}, i);
    }
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const Image &x_, &y_;
  const bool joined_;
  const ConvolutionTargets t_;
  const int64_t taps_;
  const int64_t most_;  // channels of the input per task: only this determines the boxes
  const PlaceBoxes boxes_;
};

}  // namespace

bool weighs_by_units(const KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y,
                     const Tensor& out) {
  const bool fills_lines = g.in_channels >= 4 || (g.in_channels > 1 && g.window_size() <= kMostOfFewChannels);
  return fills_lines && has_units(Units::whole) && call.numerics() == Numerics::fast && !call.ordered_sums &&
         x.dtype == DType::bf16 && y.dtype == DType::bf16 && out.dtype == DType::bf16;
}

void weigh_by_units(KernelCall& call, const ConvolutionGeometry& g, const Image& x, const Image& y, const Tensor& out) {
  UnitWeights(call, g, x, y).run(out);
}

}  // namespace sg::cpu
