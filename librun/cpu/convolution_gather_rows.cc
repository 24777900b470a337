// Gathering with places as rows: [place, channel] = [place, (channel, tap)] @ [(channel, tap), channel].
#include <algorithm>
#include <span>

#include "librun/cpu/convolution_gather.h"
#include "librun/cpu/convolution_rows.h"
#include "librun/cpu/gemm_pack.h"

namespace sg::cpu {
namespace {

constexpr int64_t kPlaces = 512;      // per box
constexpr int64_t kChannels = 256;    // channels of the target per task
constexpr int64_t kSquare = 16;       // transposed at a time
constexpr int64_t kFewestTurned = 3;  // from so many taps on that is worthwhile

int64_t padded(int64_t count, int64_t width) { return (count + width - 1) / width * width; }

template <class T>
class GatherRows {
 public:
  GatherRows(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides, const ConvolutionTargets& t)
      : call_(call),
        g_(g),
        sides_(sides),
        t_(t),
        boxes_(t, g.batch, 1, kPlaces),
        rows_(t, boxes_.largest()),
        most_(boxes_.largest().places() * boxes_.largest().entries),
        depth_(sides.source_channels * t.taps()),
        blocks_((depth_ + kSumBlock - 1) / kSumBlock),
        sums_(call, depth_),
        width_(sums_.columns()),
        packed_(call.scratch().template take<T>(blocks_ * most_ * kPackedRow)) {
    for (int64_t k = 0; k < kSumBlock; ++k) panel_rows_.push_back(k * width_);
    for (const ConvolutionTargets::Variant& v : t.variants) pieces_.push_back(pieces_of(v));
  }

  void run() {
    const int64_t team = call_.team().size(), variants = static_cast<int64_t>(t_.variants.size());
    int64_t channels = std::min(kChannels, padded(sides_.target_channels, width_));
    auto parts = [&] { return (sides_.target_channels + channels - 1) / channels; };
    while (team > 1 && channels > width_ && variants * parts() < 2 * team) channels = padded(channels / 2, width_);
    const std::vector<Space> spaces = take_spaces(channels);
    for (int64_t group = 0; group < g_.groups; ++group)
      for (int64_t i = 0; i < boxes_.count(); ++i) {
        const PlaceBox box = boxes_.at(i);
        pack_places(box, group, spaces);
        call_.team().parallel_for_indexed(variants * parts(), 1, [&](int thread, int64_t begin, int64_t end) {
          for (int64_t task = begin; task < end; ++task) {
            const int64_t channel = task % parts() * channels;
            gather_channels(box,
                            {group, static_cast<size_t>(task / parts()), channel,
                             std::min(channels, sides_.target_channels - channel)},
                            spaces[static_cast<size_t>(thread)]);
          }
        });
      }
  }

 private:
  struct Space {
    T *planes, *panel, *sums;
  };
  struct Task {
    int64_t group;
    size_t variant;
    int64_t channel, channels;  // channels of the target
  };
  struct Piece {
    int64_t k, count;  // channels of the source and taps, up to the end of a block
    int64_t at;        // offset in the weight of the target's first channel, where they are contiguous
  };

  std::vector<Space> take_spaces(int64_t channels) {
    std::vector<Space> spaces;
    for (int i = 0; i < call_.team().size(); ++i)
      spaces.push_back({call_.scratch().template take<T>(rows_.planes_size()),
                        call_.scratch().template take<T>((kSumBlock + kSquare) * width_),
                        call_.scratch().template take<T>(most_ * padded(channels, width_))});
    return spaces;
  }

  void pack_places(const PlaceBox& box, int64_t group, const std::vector<Space>& spaces) const {
    const int64_t channels = sides_.source_channels,
                  share = padded(channels, call_.team().size()) / call_.team().size();
    const int64_t together = std::min(rows_.channels_together(), share), rows = box.places() * box.entries;
    const PlaceSource source{sides_.source_size, sides_.source, group * channels, channels};
    call_.team().parallel_for_indexed(
        padded(channels, together) / together, 1, [&](int thread, int64_t begin, int64_t end) {
          for (int64_t from = begin * together; from < std::min(channels, end * together); from += together)
            rows_.pack_channels({box, 0, rows}, source, from, std::min(together, channels - from),
                                spaces[static_cast<size_t>(thread)].planes, {packed_, most_ * kPackedRow});
        });
  }

  std::vector<Piece> pieces_of(const ConvolutionTargets::Variant& v) const {
    std::vector<Piece> pieces;
    for (int64_t k = 0; k < depth_; ++k) {
      const int64_t at = k / t_.taps() * sides_.source_step + v.windows[static_cast<size_t>(k % t_.taps())];
      const bool goes_on = k % kSumBlock != 0 && at == pieces.back().at + pieces.back().count;
      if (goes_on) ++pieces.back().count;
      else pieces.push_back({k, 1, at});
    }
    return pieces;
  }

  // The sums are [panel of channels, place, channel].
  void gather_channels(const PlaceBox& box, const Task& task, const Space& s) const {
    const int64_t rows = box.places() * box.entries, step = rows * width_;
    std::span<const Piece> pieces = pieces_[task.variant];
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t k = std::min(kSumBlock, depth_ - block * kSumBlock);
      size_t count = 0;  // number of pieces in the block
      for (int64_t held = 0; held < k; ++count) held += pieces[count].count;
      for (int64_t j = 0; j < task.channels; j += width_) {
        pack_panel(pieces.first(count), task, j, s.panel);
        sums_.add_rows({packed_ + block * most_ * kPackedRow, s.panel, panel_rows_.data(), k, block == 0}, rows,
                       s.sums + j / width_ * step, width_);
      }
      pieces = pieces.subspan(count);
    }
    for (int64_t j = 0; j < task.channels; ++j) store(box, task, j, s.sums + j / width_ * step + j % width_);
  }

  // to[k, channel], with zeros after the last channel
  void pack_panel(std::span<const Piece> pieces, const Task& task, int64_t channel, T* to) const {
    const int64_t columns = std::min(width_, task.channels - channel);
    const MatrixView weight{sides_.weight.data, sides_.weight.dtype, 1, sides_.target_step};
    const int64_t first = task.group * g_.out_channels * g_.depth() + (task.channel + channel) * sides_.target_step;
    for (const Piece& p : pieces) {
      if (columns == width_ && is_turned_beyond(p, first)) {
        turn_beyond(p, first, to);
        to += p.count * width_;
        continue;
      }
      pack_block(sums_.kernels(), weight.at(first + p.at, 0), p.count, columns, to, width_);
      for (int64_t i = 0; i < p.count; ++i, to += width_) std::fill(to + columns, to + width_, T(0));
    }
  }

  // Even few taps are transposed as squares, including what follows them, which the next piece then overwrites.
  bool is_turned_beyond(const Piece& p, int64_t first) const {
    const int64_t last = first + p.at + (width_ - 1) * sides_.target_step + kSquare;
    return p.count >= kFewestTurned && p.count < kSquare && width_ % kSquare == 0 &&
           sides_.weight.dtype == kTileType<T> && last <= sides_.weight.elements();
  }
  void turn_beyond(const Piece& p, int64_t first, T* to) const {
    const T* from = sides_.weight.template as<T>() + first + p.at;
    for (int64_t j = 0; j < width_; j += kSquare)
      sums_.kernels().transpose(from + j * sides_.target_step, sides_.target_step, to + j, width_);
  }

  void store(const PlaceBox& box, const Task& task, int64_t channel, const T* sums) const {
    const Image& image = sides_.target;
    const int64_t of_target = task.group * sides_.target_channels + task.channel + channel;
    const T bias = bias_of<T>(sides_.bias, of_target);
    std::array<int64_t, 3> step;
    int64_t first = box.entry * image.batch_step + of_target * image.channel_step;
    for (size_t d = 0; d < 3; ++d) {
      step[d] = t_.axes[d].step * image.step[d];
      first += t_.variants[task.variant].first[d] * image.step[d] + box.begin[d] * step[d];
    }
    visit_floating(image.dtype, [&]<class To>() {
      To* to = reinterpret_cast<To*>(const_cast<std::byte*>(image.data)) + first;
      for (int64_t e = 0; e < box.entries; ++e)
        for (int64_t a = 0; a < box.size[0]; ++a)
          for (int64_t b = 0; b < box.size[1]; ++b)
            for (int64_t c = 0; c < box.size[2]; ++c, sums += width_)
              to[e * image.batch_step + a * step[0] + b * step[1] + c * step[2]] =
                  static_cast<To>(static_cast<Compute<To>>(*sums + bias));
    });
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  const GatherSides& sides_;
  const ConvolutionTargets& t_;
  const PlaceBoxes boxes_;
  const PlaceRows<T> rows_;
  const int64_t most_, depth_, blocks_;  // rows of a box; k, and its blocks
  const GatherSums<T> sums_;
  const int64_t width_;  // of a panel
  T* packed_;            // [block, place, k]
  std::vector<int64_t> panel_rows_;
  std::vector<std::vector<Piece>> pieces_;  // by variant
};

}  // namespace

// Compares the costs of both ways per channel of the source and tap, in multiply-adds (measured with vectors of 16
// floats). With rows, places are copied in small runs, and weights one panel at a time. Otherwise weights are packed
// once, panels of short lines are copied for each block of rows, and places between lines are computed in vain.
template <class T>
bool gathers_by_rows(const ConvolutionGeometry& g, const GatherSides& sides, const ConvolutionTargets& t) {
  const int64_t width = tile_kernels<T>(best_isa()).columns, variants = static_cast<int64_t>(t.variants.size());
  if (g.batch * t.places() * sides.source_channels == 0) return false;
  const PlaceBoxes boxes(t, g.batch, 1, kPlaces);
  const PlaceBox box = boxes.largest();
  const PlacePanels panels(box, PlaneLayout(t, box, 1), width);
  const int64_t places = box.places() * box.entries, channels = sides.target_channels * variants;
  const int64_t by_rows =
      padded(sides.target_channels, width) * variants * places + (t.taps() > 1 ? 40 : 16) * places + 20 * channels;
  const int64_t copies = panels.is_copied() ? 12 * places * ((channels + kGatherRows - 1) / kGatherRows) : 0;
  return by_rows < channels * panels.count() * width + copies + 32 * channels / boxes.count();
}

template <class T>
void gather_by_rows(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides,
                    const ConvolutionTargets& t) {
  GatherRows<T>(call, g, sides, t).run();
}

#define SG_INSTANTIATE(T)                                                                                      \
  template bool gathers_by_rows<T>(const ConvolutionGeometry&, const GatherSides&, const ConvolutionTargets&); \
  template void gather_by_rows<T>(KernelCall&, const ConvolutionGeometry&, const GatherSides&,                 \
                                  const ConvolutionTargets&);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
