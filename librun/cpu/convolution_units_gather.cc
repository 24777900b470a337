// Gathering on matrix units: [channel, place] = [channel, (source channel, tap)] @ [(source channel, tap), place]. The
// right-hand rows are pairs of channels, interleaved place by place; a tap is an offset.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "librun/cpu/blocks.h"
#include "librun/cpu/convolution_planes.h"
#include "librun/cpu/convolution_unit_panels.h"
#include "librun/cpu/convolution_units.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/unit_tiles.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

constexpr int64_t kPlacesOfBox = 512, kMostPlaces = 2048;
constexpr int64_t kLeastDepth = 16;         // channels of the source, and taps: with fewer, steps are mostly empty
constexpr int64_t kPairs = kUnitDepth / 2;  // rows of a right-hand tile
constexpr int64_t kPanel = UnitPanels::kWidth;
constexpr int64_t kTileBytes = kUnitTile * sizeof(uint16_t);

SG_CLONES void interleave_lines(const BF16* even, const BF16* odd, int64_t count, uint32_t* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = even[i].bits | uint32_t{odd[i].bits} << 16;
}

// to[row, place] from the sums of four tiles
SG_CLONES void round_sums(const float* sums, int64_t rows, const float* bias, uint16_t* to) {
  for (int64_t i = 0; i < rows; ++i, to += kPanel) {
    const float* row = sums + (i / kUnitLines * 2 * kUnitLines + i % kUnitLines) * kUnitLines;
    for (int64_t j = 0; j < kUnitLines; ++j) to[j] = BF16(row[j] + bias[i]).bits;
    for (int64_t j = 0; j < kUnitLines; ++j) to[kUnitLines + j] = BF16(row[kUnitSums + j] + bias[i]).bits;
  }
}

// Of how many of the last axes a tap is, with a channel, a line of a step, because there would be fewer than half as
// many steps: with few channels a step is mostly empty. By the source's channels and the window alone, as bits depend
// on it.
int merged_axes(const ConvolutionTargets& t, int64_t channels) {
  int best = 0;
  int64_t merged = 1, fewest = t.taps() * blocks_of(channels, kUnitDepth);
  for (int axes = 1; axes <= 3; ++axes) {
    merged *= static_cast<int64_t>(t.axes[static_cast<size_t>(3 - axes)].taps.size());
    const int64_t steps = t.taps() / merged * blocks_of(channels * merged, kUnitDepth);
    if (2 * steps < fewest) best = axes, fewest = steps;
  }
  return best;
}

class UnitGather {
 public:
  UnitGather(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides, const ConvolutionTargets& t)
      : call_(call),
        g_(g),
        sides_(sides),
        merged_axes_(merged_axes(t, sides.source_channels)),
        rows_(sides.target_channels * static_cast<int64_t>(t.variants.size())),
        row_tiles_(blocks_of(rows_, kUnitLines)),
        t_(best_targets(t)),
        merged_(merged_taps()),
        taps_(t_.taps() / merged_),
        blocks_(blocks_of(sides.source_channels * merged_, kUnitDepth)),
        boxes_(boxes_for(t_)) {
    for (int64_t s = 0; s < blocks_ * taps_; ++s) packed_at_.push_back(s * kTileBytes);
  }

  void run() {
    const int64_t team = call_.team().size(), tasks = boxes_.count() * g_.groups;
    if (tasks * row_tiles_ == 0) return;
    pack_weights();
    int64_t part = row_tiles_;  // per task
    while (team > 1 && part > 2 && tasks * blocks_of(row_tiles_, part) < 2 * team) part = blocks_of(part, 4) * 2;
    const int64_t parts = blocks_of(row_tiles_, part);
    const std::vector<Space> spaces = take_spaces();
    call_.team().parallel_for_indexed(tasks * parts, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % parts * part;
        gather_box(boxes_.at(task / parts / g_.groups), task / parts % g_.groups, first,
                   std::min(row_tiles_, first + part), spaces[static_cast<size_t>(thread)]);
      }
    });
  }

 private:
  struct Space {
    BF16* planes;     // of channels that are filled together
    uint32_t* pairs;  // [pair of lines, position in its planes]
  };

  // Of few channels more places fit a cache, and fewer positions around boxes are filled several times.
  PlaceBoxes boxes_for(const ConvolutionTargets& t) const {
    const int64_t fitting = kMostPlaces / blocks_of(sides_.source_channels, kUnitDepth),
                  shared = g_.batch * t.places() / (4 * call_.team().size());
    return {t, g_.batch, blocks_of(sides_.source_channels, 2), std::max(kPlacesOfBox, std::min(fitting, shared))};
  }

  int64_t merged_taps() const {
    int64_t taps = 1;
    for (size_t d = 3; d-- > static_cast<size_t>(3 - merged_axes_);) taps *= std::ssize(t_.axes[d].taps);
    return taps;
  }

  // Compares the costs of a pair of channels, in cycles for each place: of multiplying places that nobody wants, and of
  // filling more planes.
  ConvolutionTargets best_targets(const ConvolutionTargets& t) const {
    ConvolutionTargets best;
    double least = 0;
    for (int apart = merged_axes_; apart <= 3; ++apart) {
      ConvolutionTargets candidate = with_taps_apart(t, apart);
      const PlaceBoxes boxes = boxes_for(candidate);
      if (boxes.count() == 0) return candidate;
      const PlaceBox box = boxes.largest();
      const PlaneLayout layout(candidate, box, 1, PlaneLayout::Entries::inside);
      const auto multiplied = static_cast<double>(2 * row_tiles_ * UnitPanels::most(box, layout) * t.taps());
      const double filled = static_cast<double>(layout.channel) * (0.6 + 12 / static_cast<double>(layout.length[2])),
                   cost = (multiplied + filled) / static_cast<double>(box.places() * box.entries);
      if (apart == merged_axes_ || cost < least) best = std::move(candidate), least = cost;
    }
    return best;
  }

  // Channels filled together: those of a step, or all, if there are few.
  int64_t together() const { return merged_axes_ == 0 ? kUnitDepth : sides_.source_channels; }

  PlaneLayout layout_of(const PlaceBox& box) const {
    return {t_, box, std::max(together(), kUnitDepth), PlaneLayout::Entries::inside};
  }
  // Elements between the lines of pairs.
  int64_t pair_step(const PlaneLayout& layout) const { return row_stride(layout.channel / merged_, sizeof(uint32_t)); }

  std::vector<Space> take_spaces() const {
    const PlaneLayout layout = layout_of(boxes_.largest());
    const int64_t pairs = blocks_ * kPairs * pair_step(layout) + PlaneLayout::kSpare;
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back(
          {call_.scratch().template take<BF16>(layout.elements), call_.scratch().template take<uint32_t>(pairs)});
    return spaces;
  }

  struct Row {
    size_t variant;
    int64_t channel;  // of the target
  };
  Row row(int64_t i) const { return {static_cast<size_t>(i / sides_.target_channels), i % sides_.target_channels}; }

  // packed_[group, tile of rows, block of lines, tap]: tiles [row, line]
  void pack_weights() {
    packed_ = call_.scratch().take<uint16_t>(g_.groups * row_tiles_ * blocks_ * taps_ * kUnitTile);
    call_.team().parallel_for(g_.groups * row_tiles_ * blocks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        pack_tiles(i / blocks_ / row_tiles_, i / blocks_ % row_tiles_, i % blocks_, packed_ + i * taps_ * kUnitTile);
    });
  }

  void pack_tiles(int64_t group, int64_t tile, int64_t block, uint16_t* to) const {
    const int64_t first = tile * kUnitLines, rows = std::min(kUnitLines, rows_ - first), from = block * kUnitDepth,
                  depth = std::min(kUnitDepth, sides_.source_channels * merged_ - from);
    const uint16_t* weight = sides_.weight.as<uint16_t>() + group * g_.out_channels * g_.depth();
    if (rows < kUnitLines || depth < kUnitDepth) std::fill_n(to, taps_ * kUnitTile, uint16_t{0});
    const Row last = row(first + rows - 1);
    if (merged_ == 1 && row(first).variant == last.variant) {
      weight += row(first).channel * sides_.target_step + from * sides_.source_step;
      return pack_channels(weight, t_.variants[last.variant].windows, rows, depth, to);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const auto [variant, channel] = row(first + i);
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t* windows = t_.variants[variant].windows.data() + (from + k) % merged_;
        const uint16_t* at = weight + channel * sides_.target_step + (from + k) / merged_ * sides_.source_step;
        for (int64_t tap = 0; tap < taps_; ++tap) to[tap * kUnitTile + i * kUnitDepth + k] = at[windows[tap * merged_]];
      }
    }
  }

  // Tiles whose lines are channels, of rows of one variant. One of the channels and the taps alternate in memory.
  void pack_channels(const uint16_t* weight, const std::vector<int64_t>& windows, int64_t rows, int64_t depth,
                     uint16_t* to) const {
    auto pack = [&](const uint16_t* from, int64_t lines, int64_t line_step, int64_t k_step, uint16_t* tile) {
      const MatrixView view{reinterpret_cast<const std::byte*>(from), DType::bf16, line_step, k_step};
      pack_parts(Units::whole, TileForm::lines, view, lines, depth, LineScales(), tile, kUnitTile);
    };
    const int64_t window = g_.window_size();
    if (window == 1) return pack(weight, rows, sides_.target_step, sides_.source_step, to);
    std::vector<int64_t> tap_of(static_cast<size_t>(window), -1);
    for (size_t tap = 0; tap < windows.size(); ++tap)
      tap_of[static_cast<size_t>(windows[tap])] = static_cast<int64_t>(tap);
    // Lines are rows through all taps where these are contiguous, or else one row's taps.
    const bool together = sides_.target_step == window;
    const int64_t lines = together ? rows * window : window;
    alignas(64) uint16_t tile[kUnitTile];
    for (int64_t row = 0; row < rows; row += together ? rows : 1)
      for (int64_t first = 0; first < lines; first += kUnitLines) {
        const int64_t count = std::min(kUnitLines, lines - first);
        pack(weight + row * sides_.target_step + first, count, 1, sides_.source_step, tile);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t tap = tap_of[static_cast<size_t>((first + i) % window)], of_row = row + (first + i) / window;
          if (tap >= 0)
            std::memcpy(to + tap * kUnitTile + of_row * kUnitDepth, tile + i * kUnitDepth,
                        kUnitDepth * sizeof(uint16_t));
        }
      }
  }

  void gather_box(const PlaceBox& box, int64_t group, int64_t first, int64_t last, const Space& s) const {
    const PlaneLayout layout = layout_of(box);
    fill_pairs(box, layout, group, s);
    std::vector<int64_t> at;  // of steps
    for (int64_t block = 0; block < blocks_; ++block)
      for (int64_t tap = 0; tap < taps_; ++tap)
        at.push_back((block * kPairs * pair_step(layout) + offset_of(tap, layout)) * int64_t{sizeof(uint32_t)});
    Three step;
    for (size_t d = 0; d < 3; ++d) step[d] = t_.axes[d].step * sides_.target.step[d];
    const UnitPanels panels(box, layout, sides_.target.batch_step, step);
    const UnitTiles tiles;
    for (int64_t tile = first; tile < last; tile += 2)
      gather_rows({box, panels, at, pair_step(layout), step[2]}, group, tile, std::min<int64_t>(2, last - tile), s);
  }

  // A tap's place in a line's planes, of which there is one for `merged_` of the channel's.
  int64_t offset_of(int64_t tap, const PlaneLayout& layout) const {
    const int64_t at = layout.taps[static_cast<size_t>(tap * merged_)];
    return at / layout.plane / merged_ * layout.plane + at % layout.plane;
  }

  void fill_pairs(const PlaceBox& box, const PlaneLayout& layout, int64_t group, const Space& s) const {
    const int64_t channels = sides_.source_channels, step = pair_step(layout);
    uint32_t* to = s.pairs;
    for (int64_t from = 0; from < channels; from += together()) {
      const int64_t count = std::min(together(), channels - from), lines = count * merged_;
      fill_planes(t_, box, layout, {sides_.source_size, sides_.source, group * channels + from, count}, s.planes);
      BF16* zeros = s.planes + count * layout.channel;
      if (lines % kUnitDepth != 0) std::fill_n(zeros, layout.channel, BF16());
      auto line = [&](int64_t i) {
        return i < lines ? s.planes + i / merged_ * layout.channel + i % merged_ * layout.plane : zeros;
      };
      for (int64_t i = 0; i < blocks_of(lines, kUnitDepth) * kUnitDepth; i += 2, to += step)
        for (int64_t plane = 0; plane < layout.channel / merged_; plane += layout.plane)
          interleave_lines(line(i) + plane * merged_, line(i + 1) + plane * merged_, layout.plane, to + plane);
    }
  }

  struct Filled {  // the planes of a box
    const PlaceBox& box;
    const UnitPanels& panels;
    const std::vector<int64_t>& at;
    int64_t pair_step, place_step;
  };

  // One or two tiles of rows, for all places.
  void gather_rows(const Filled& f, int64_t group, int64_t tile, int64_t tiles, const Space& s) const {
    const int64_t steps = blocks_ * taps_, first = tile * kUnitLines,
                  rows = std::min(tiles * kUnitLines, rows_ - first);
    const uint16_t* packed = packed_ + (group * row_tiles_ + tile) * steps * kUnitTile;
    const UnitRows left{{packed, packed + steps * kUnitTile},
                        {packed_at_.data(), packed_at_.data()},
                        kUnitDepth * sizeof(uint16_t),
                        static_cast<int>(tiles)};
    float bias[2 * kUnitLines] = {};
    uint16_t* to[2 * kUnitLines];
    for (int64_t i = 0; i < rows; ++i) {
      const auto [variant, channel] = row(first + i);
      const int64_t of_target = group * sides_.target_channels + channel;
      bias[i] = bias_of<float>(sides_.bias, of_target);
      to[i] = place_of(f.box, variant, of_target);
    }
    alignas(64) float sums[4 * kUnitSums] = {};
    alignas(64) uint16_t rounded[2 * kUnitLines * kPanel];
    for (const UnitPanels::Panel& p : f.panels.all()) {
      const uint32_t* begin = s.pairs + p.begin;
      const UnitRows right{
          {begin, begin + kUnitLines}, {f.at.data(), f.at.data()}, f.pair_step * int64_t{sizeof(uint32_t)}, p.tiles};
      multiply_rows(left, right, steps, false, UnitPlaces::one_by_one(sums));
      round_sums(sums, rows, bias, rounded);
      for (const UnitPanels::Piece* piece = f.panels.pieces() + p.first; piece != f.panels.pieces() + p.last; ++piece)
        store_piece(*piece, rounded, {to, static_cast<size_t>(rows)}, f.place_step);
    }
  }

  uint16_t* place_of(const PlaceBox& box, size_t variant, int64_t channel) const {
    const Image& image = sides_.target;
    auto* to = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(image.data)) + box.entry * image.batch_step +
               channel * image.channel_step;
    for (size_t d = 0; d < 3; ++d)
      to += (t_.variants[variant].first[d] + box.begin[d] * t_.axes[d].step) * image.step[d];
    return to;
  }

  static void store_piece(const UnitPanels::Piece& piece, const uint16_t* rounded, std::span<uint16_t* const> rows,
                          int64_t step) {
    rounded += piece.column;
    if (step == 1) return copy_lines(rounded, kPanel, piece.count, rows, piece.at);
    for (uint16_t* row : rows) {
      for (int64_t j = 0; j < piece.count; ++j) row[piece.at + j * step] = rounded[j];
      rounded += kPanel;
    }
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const GatherSides& sides_;
  const int merged_axes_;
  const int64_t rows_, row_tiles_;  // channels of the target, for each variant
  const ConvolutionTargets t_;
  const int64_t merged_, taps_;  // taps that make lines of a channel, and those of a line
  const int64_t blocks_;         // of lines
  const PlaceBoxes boxes_;
  uint16_t* packed_ = nullptr;
  std::vector<int64_t> packed_at_;  // of steps
};

}  // namespace

bool gathers_by_units(const KernelCall& call, const GatherSides& sides, int64_t window) {
  return has_units(Units::whole) && call.numerics() == Numerics::fast && !call.ordered_sums &&
         sides.source.dtype == DType::bf16 && sides.weight.dtype == DType::bf16 && sides.target.dtype == DType::bf16 &&
         sides.source_channels * window >= kLeastDepth && (sides.target_channels >= 4 || sides.source_channels >= 32);
}

void gather_by_units(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides,
                     const ConvolutionTargets& t) {
  UnitGather(call, g, sides, t).run();
}

ConvolutionTargets with_taps_apart(const ConvolutionTargets& t, int count) {
  ConvolutionTargets out = t;
  for (size_t d = 3; d-- > static_cast<size_t>(3 - count);) part_taps(&out.axes[d]);
  return out;
}

}  // namespace sg::cpu
