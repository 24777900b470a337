// The planes of convolution_axes.h for a part of the places at a time: threads read the tiles of products from them.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "librun/cpu/convolution_axes.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/gemm_tile.h"
#include "librun/element.h"

namespace sg::cpu {

inline constexpr int64_t kCopyRound = 16;

// Some places of some entries: boxes tile the whole, the last ones may be smaller.
struct PlaceBox {
  std::array<int64_t, 3> begin{}, size{};
  int64_t entry = 0, entries = 1;
  int64_t places() const { return size[0] * size[1] * size[2]; }
};

// Consecutive places of a box along a line; `place` is the first one, relative to the box.
struct PlaceRun {
  int64_t entry;
  std::array<int64_t, 3> place;
  int64_t count;
};
// The places [first, first + count) of a box, in its order.
std::vector<PlaceRun> place_runs(const PlaceBox& box, int64_t first, int64_t count);
// Where a run begins in an image, relative to a channel.
int64_t place_in(const Image& image, const PlaceBox& box, const PlaceRun& run);

// Places of an image that follow each other at its last step.
struct ImageRun {
  int64_t at, count;
};
// The places [first, first + count) of a box in an image; lines that continue each other form one run.
std::vector<ImageRun> image_runs(const Image& image, const PlaceBox& box, int64_t first, int64_t count);

class PlaceBoxes {
 public:
  // Boxes of at most about `places` places, and no more than fit a cache with `channels` channels' planes of f32.
  PlaceBoxes(const ConvolutionTargets& t, int64_t batch, int64_t channels, int64_t places);
  int64_t count() const { return entry_boxes_ * boxes_[0] * boxes_[1] * boxes_[2]; }
  PlaceBox at(int64_t i) const;
  PlaceBox largest() const { return {{}, size_, 0, entries_}; }

 private:
  std::array<int64_t, 3> places_, size_, boxes_;
  int64_t batch_, entries_, entry_boxes_;
};

// Layout of planes: [entry, channel, plane, position 0, 1, 2], or with entries inside, [channel, plane, entry,
// position].
struct PlaneLayout {
  enum class Entries : uint8_t { outside, inside };
  PlaneLayout(const ConvolutionTargets& t, const PlaceBox& box, int64_t channels, Entries entries = Entries::outside);

  std::array<int64_t, 3> length;                                   // size of a plane
  int64_t size;                                                    // its elements
  int64_t plane, channel, entry;                                   // strides, in elements
  std::vector<int64_t> taps;                                       // offsets of the taps of one channel
  int64_t elements;                                                // total, including room for a tile that reads beyond
  static constexpr int64_t kSpare = kMaxTileColumns + kCopyRound;  // that room

  // Leaves room behind each channel's planes. REQUIRES: entries inside; step >= channel
  void move_apart(int64_t step, int64_t channels);

  int64_t line(int64_t entry_at, int64_t a, int64_t b) const {  // the first place of a line
    return entry_at * entry + (a * length[1] + b) * length[2];
  }
};

// What planes are filled from: its size, its image, and the range of channels.
struct PlaceSource {
  const std::array<int64_t, 3>& size;
  const Image& image;
  int64_t channel, channels;
};

// Fills planes with the source's channels of the box's entries.
template <class T>
void fill_planes(const ConvolutionTargets& t, const PlaceBox& box, const PlaneLayout& layout, const PlaceSource& source,
                 T* to);

// The places of a box as panels of a tile's width, read in place from the planes: panels continue across line ends if
// that reduces their number. If much would be read in vain (small planes), panels are copies: pieces of lines,
// concatenated.
class PlacePanels {
 public:
  struct Piece {
    int64_t at, count;  // within the planes
  };
  PlacePanels(const PlaceBox& box, const PlaneLayout& layout, int64_t width);
  // An upper bound of the panels of any box within `largest`.
  static int64_t most(const PlaceBox& largest, const PlaneLayout& layout, int64_t width);

  int64_t count() const {
    return is_copied() ? static_cast<int64_t>(first_piece_.size()) - 1 : static_cast<int64_t>(begins_.size());
  }
  bool is_copied() const { return !first_piece_.empty(); }
  int64_t begin(int64_t panel) const { return begins_[static_cast<size_t>(panel)]; }  // REQUIRES: !is_copied()
  std::span<const Piece> pieces(int64_t panel) const {                                // REQUIRES: is_copied()
    auto i = static_cast<size_t>(panel);
    return {pieces_.data() + first_piece_[i], first_piece_[i + 1] - first_piece_[i]};
  }
  // Where the sums of a line are, panel after panel; lines by entry, place 0 and 1.
  int64_t line(size_t i) const { return lines_[i]; }

 private:
  void read_in_place(const PlaceBox& box, const PlaneLayout& layout, int64_t width);
  void copy_pieces(const PlaceBox& box, const PlaneLayout& layout, int64_t width);

  std::vector<int64_t> begins_, lines_;
  std::vector<Piece> pieces_;
  std::vector<size_t> first_piece_;
};

// Copies elements `step` apart to a line of T. Most lines are short, so they are copied a few elements at a time.
template <class T, class From>
void copy_line(const From* from, int64_t step, int64_t count, T* to) {
  constexpr int64_t kUnit = 4, kLong = 64;
  int64_t i = 0;
  if constexpr (std::is_same_v<T, From>) {
    if (step == 1 && count >= kLong) return void(std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T)));
    for (; step == 1 && i + kUnit <= count; i += kUnit) std::memcpy(to + i, from + i, kUnit * sizeof(T));
  }
  for (; i < count; ++i) to[i] = converted<T>(from[i * step]);
}

// Copies elements, rounded up to the next multiple of kCopyRound.
template <class T>
void copy_rounded(const T* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; i += kCopyRound)
    std::memcpy(to + i, from + i, static_cast<size_t>(kCopyRound) * sizeof(T));
}

// The element type of planes whose operands are packed as P.
template <class P>
struct PlaneCell {
  using Type = P;
};
template <>
struct PlaneCell<Bf16Pair> {
  using Type = BF16;
};

// Turns consecutive numbers, those at even k first, into pairs in place; an odd last one is paired with zero.
void pair_up(BF16* numbers, int64_t count);

// A panel of pairs: rows at[0] and at[1] of the planes, at[2] and at[3], ...; an odd last one is paired with zeros.
// Copies are rounded up like those of copy_rounded.
void pack_pairs(std::span<const PlacePanels::Piece> pieces, const int64_t* at, int64_t k, const BF16* planes,
                int64_t width, Bf16Pair* to);

}  // namespace sg::cpu
