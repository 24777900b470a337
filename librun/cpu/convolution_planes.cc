#include "librun/cpu/convolution_planes.h"

#include <algorithm>
#include <cstring>

#include "librun/cpu/blocks.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/isa.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

constexpr int64_t kPlaneElements = 1 << 17;  // limit for a box's planes
constexpr int64_t kFewPlaces = 128;          // boxes are not cut further

int64_t elements_of(const ConvolutionTargets& t, const Three& size) {
  int64_t n = 1;
  for (size_t d = 0; d < 3; ++d) n *= t.axes[d].planes() * (size[d] + t.axes[d].reach);
  return n;
}

// Positions of a plane that are inside the source: `first` is the element at position 0.
struct Inside {
  int64_t begin, end;
};
Inside inside(int64_t first, int64_t step, int64_t length, int64_t size) {
  int64_t begin = first >= 0 ? 0 : (-first + step - 1) / step, end = first >= size ? 0 : (size - 1 - first) / step + 1;
  end = std::clamp<int64_t>(end, 0, length);
  return {std::min(begin, end), end};
}

// One plane of each channel: the part inside the source, and its offset there.
struct PlaneSource {
  PlaneSource(const Three& first, const Three& step, const Three& length, const Three& source, const Three& stride) {
    for (size_t d = 0; d < 3; ++d) {
      in[d] = inside(first[d], step[d], length[d], source[d]);
      at += (first[d] + in[d].begin * step[d]) * stride[d];
      is_whole = is_whole && in[d].begin == 0 && in[d].end == length[d];
      is_empty = is_empty || in[d].begin == in[d].end;
    }
  }
  std::array<Inside, 3> in;
  int64_t at = 0;
  bool is_whole = true, is_empty = false;
};

// Fills the inside part of one channel's plane; `step` is the source stride between its positions.
template <class T, class From>
void fill_plane(const PlaneSource& p, const Three& step, const Three& length, const From* from, T* to) {
  const auto& [a_in, b_in, c_in] = p.in;
  for (int64_t a = a_in.begin; a < a_in.end; ++a)
    for (int64_t b = b_in.begin; b < b_in.end; ++b)
      copy_line(from + p.at + (a - a_in.begin) * step[0] + (b - b_in.begin) * step[1], step[2], c_in.end - c_in.begin,
                to + (a * length[1] + b) * length[2] + c_in.begin);
}

// Whether there is a single plane per channel, whose places are laid out as in the source.
bool lies_so(const std::vector<PlaneSource>& planes, const PlaneLayout& layout, const Three& step) {
  const Three dense{layout.length[1] * layout.length[2], layout.length[2], 1};
  bool lines = planes.size() == 1 && planes[0].is_whole;
  for (size_t d = 0; d < 3; ++d) lines = lines && (layout.length[d] == 1 || step[d] == dense[d]);
  return lines;
}

}  // namespace

PlaceBoxes::PlaceBoxes(const ConvolutionTargets& t, int64_t batch, int64_t channels, int64_t places)
    : batch_(batch), entries_(1) {
  for (size_t d = 0; d < 3; ++d) places_[d] = size_[d] = t.axes[d].places;
  auto count = [&] { return size_[0] * size_[1] * size_[2]; };
  auto elements = [&] { return std::max<int64_t>(channels, 1) * elements_of(t, size_); };
  for (size_t d = 0; d < 3; ++d)
    while (size_[d] > 1 && (count() > places || (count() > kFewPlaces && elements() > kPlaneElements)))
      size_[d] = (size_[d] + 1) / 2;
  while (entries_ < batch && 2 * entries_ * count() <= places && 2 * entries_ * elements() <= kPlaneElements)
    entries_ *= 2;
  for (size_t d = 0; d < 3; ++d) boxes_[d] = size_[d] == 0 ? 0 : blocks_of(places_[d], size_[d]);
  entry_boxes_ = blocks_of(batch, entries_);
}

PlaceBox PlaceBoxes::at(int64_t i) const {
  PlaceBox box;
  for (size_t d = 3; d-- > 0; i /= boxes_[d]) {
    box.begin[d] = i % boxes_[d] * size_[d];
    box.size[d] = std::min(size_[d], places_[d] - box.begin[d]);
  }
  box.entry = i * entries_;
  box.entries = std::min(entries_, batch_ - box.entry);
  return box;
}

std::vector<PlaceRun> place_runs(const PlaceBox& box, int64_t first, int64_t count) {
  std::vector<PlaceRun> runs;
  for (int64_t at = first, length = 0; at < first + count; at += length) {
    const int64_t line = at / box.size[2], c = at % box.size[2];
    length = std::min(box.size[2] - c, first + count - at);
    runs.push_back(
        {line / box.size[1] / box.size[0], {line / box.size[1] % box.size[0], line % box.size[1], c}, length});
  }
  return runs;
}

int64_t place_in(const Image& image, const PlaceBox& box, const PlaceRun& run) {
  int64_t at = (box.entry + run.entry) * image.batch_step;
  for (size_t d = 0; d < 3; ++d) at += (box.begin[d] + run.place[d]) * image.step[d];
  return at;
}

std::vector<ImageRun> image_runs(const Image& image, const PlaceBox& box, int64_t first, int64_t count) {
  std::vector<ImageRun> runs;
  for (const PlaceRun& run : place_runs(box, first, count)) {
    const int64_t at = place_in(image, box, run);
    const bool goes_on = !runs.empty() && at == runs.back().at + runs.back().count * image.step[2];
    if (goes_on) runs.back().count += run.count;
    else runs.push_back({at, run.count});
  }
  return runs;
}

PlaneLayout::PlaneLayout(const ConvolutionTargets& t, const PlaceBox& box, int64_t channels, Entries entries) {
  const bool inside = entries == Entries::inside;
  for (size_t d = 0; d < 3; ++d) length[d] = box.size[d] + t.axes[d].reach;
  size = length[0] * length[1] * length[2];
  plane = inside ? size * box.entries : size;
  channel = plane * t.axes[0].planes() * t.axes[1].planes() * t.axes[2].planes();
  entry = inside ? size : channel * channels;
  elements = (inside ? channel * channels : entry * box.entries) + kSpare;
  for (const auto& a : t.axes[0].taps)
    for (const auto& b : t.axes[1].taps)
      for (const auto& c : t.axes[2].taps) {
        int64_t at = (a.plane * t.axes[1].planes() + b.plane) * t.axes[2].planes() + c.plane;
        taps.push_back(at * plane + (a.offset * length[1] + b.offset) * length[2] + c.offset);
      }
}

void PlaneLayout::move_apart(int64_t step, int64_t channels) {
  channel = step;
  elements = step * channels + kSpare;
}

template <class T>
void fill_planes(const ConvolutionTargets& t, const PlaceBox& box, const PlaneLayout& layout, const PlaceSource& source,
                 T* to) {
  const Image& image = source.image;
  Three step, begin, stride;  // step: of positions in the source; stride: of the source's elements
  for (size_t d = 0; d < 3; ++d) {
    step[d] = t.axes[d].source_step, begin[d] = box.begin[d] * step[d];
    stride[d] = step[d] * image.step[d];
  }
  std::vector<PlaneSource> planes;
  for (int64_t a : t.axes[0].origins)
    for (int64_t b : t.axes[1].origins)
      for (int64_t c : t.axes[2].origins)
        planes.emplace_back(Three{a + begin[0], b + begin[1], c + begin[2]}, step, layout.length, source.size,
                            image.step);
  const bool as_it_lies = lies_so(planes, layout, stride),
             all_lie_so = as_it_lies && image.channel_step == layout.channel && layout.channel == layout.size;
  visit_floating(image.dtype, [&]<class From>() {
    for (int64_t e = 0; e < box.entries; ++e) {
      const From* from = reinterpret_cast<const From*>(image.data) + (box.entry + e) * image.batch_step +
                         source.channel * image.channel_step;
      T* channel = to + e * layout.entry;
      if (all_lie_so) {
        copy_line(from + planes[0].at, 1, source.channels * layout.channel, channel);
        continue;
      }
      for (int64_t c = 0; c < source.channels; ++c, from += image.channel_step, channel += layout.channel) {
        T* plane = channel;
        if (layout.size == 1) {  // of each channel and tap a single place
          for (const PlaneSource& p : planes) {
            *plane = p.is_empty ? T(0) : converted<T>(from[p.at]);
            plane += layout.plane;
          }
          continue;
        }
        for (const PlaneSource& p : planes) {
          if (!p.is_whole) std::fill_n(plane, layout.size, T(0));
          if (as_it_lies) copy_line(from + p.at, 1, layout.size, plane);
          else if (!p.is_empty) fill_plane(p, stride, layout.length, from, plane);
          plane += layout.plane;
        }
      }
    }
  });
  std::fill_n(to + layout.elements - PlaneLayout::kSpare, PlaneLayout::kSpare, T(0));
}

PlacePanels::PlacePanels(const PlaceBox& box, const PlaneLayout& layout, int64_t width) {
  read_in_place(box, layout, width);
  if (4 * static_cast<int64_t>(begins_.size()) > 5 * blocks_of(box.places() * box.entries, width))
    copy_pieces(box, layout, width);
}

int64_t PlacePanels::most(const PlaceBox& largest, const PlaneLayout& layout, int64_t width) {
  return std::max(PlacePanels(largest, layout, width).count(),
                  5 * blocks_of(largest.places() * largest.entries, width) / 4 + 1);
}

void PlacePanels::read_in_place(const PlaceBox& box, const PlaneLayout& layout, int64_t width) {
  // Candidates for continuing: the places of an entry, of its position 0, or of a line.
  const Three runs{1, box.size[0], box.size[0] * box.size[1]};
  const Three length{layout.line(0, box.size[0] - 1, box.size[1] - 1) + box.size[2],
                     layout.line(0, 0, box.size[1] - 1) + box.size[2], box.size[2]};
  size_t best = 0;
  for (size_t i = 1; i < 3; ++i)
    if (runs[i] * blocks_of(length[i], width) < runs[best] * blocks_of(length[best], width)) best = i;
  int64_t run_at = 0, run_sums = 0;
  for (int64_t e = 0; e < box.entries; ++e)
    for (int64_t a = 0; a < box.size[0]; ++a)
      for (int64_t b = 0; b < box.size[1]; ++b) {
        const int64_t at = layout.line(e, a, b);
        if (best == 2 || (b == 0 && (best == 1 || a == 0))) {  // a run begins
          run_at = at, run_sums = static_cast<int64_t>(begins_.size()) * width;
          for (int64_t i = 0; i < length[best]; i += width) begins_.push_back(at + i);
        }
        lines_.push_back(run_sums + at - run_at);
      }
}

void PlacePanels::copy_pieces(const PlaceBox& box, const PlaneLayout& layout, int64_t width) {
  lines_.clear();
  int64_t place = 0;
  for (int64_t e = 0; e < box.entries; ++e)
    for (int64_t a = 0; a < box.size[0]; ++a)
      for (int64_t b = 0; b < box.size[1]; ++b) {
        lines_.push_back(place);
        for (int64_t c = 0, count = 0; c < box.size[2]; c += count, place += count) {
          if (place % width == 0) first_piece_.push_back(pieces_.size());
          count = std::min(box.size[2] - c, width - place % width);
          pieces_.push_back({layout.line(e, a, b) + c, count});
        }
      }
  first_piece_.push_back(pieces_.size());
}

template void fill_planes(const ConvolutionTargets&, const PlaceBox&, const PlaneLayout&, const PlaceSource&, float*);
template void fill_planes(const ConvolutionTargets&, const PlaceBox&, const PlaneLayout&, const PlaceSource&, double*);
template void fill_planes(const ConvolutionTargets&, const PlaceBox&, const PlaneLayout&, const PlaceSource&, BF16*);

SG_CLONES void pair_up(BF16* numbers, int64_t count) {
  if (count % 2 != 0) numbers[count] = BF16();
  for (int64_t i = 0; i < count; i += 2) {
    uint32_t pair;
    std::memcpy(&pair, numbers + i, sizeof(pair));
    pair = pair << 16 | pair >> 16;
    std::memcpy(static_cast<void*>(numbers + i), &pair, sizeof(pair));
  }
}

namespace {

// Interleaves kCopyRound elements of two rows.
SG_INLINE void join(const BF16* first, const BF16* second, Bf16Pair* to) {
  uint16_t a[kCopyRound], b[kCopyRound];
  uint32_t pairs[kCopyRound];
  std::memcpy(a, first, sizeof(a)), std::memcpy(b, second, sizeof(b));
  for (int64_t i = 0; i < kCopyRound; ++i) pairs[i] = uint32_t{a[i]} << 16 | b[i];
  std::memcpy(to, pairs, sizeof(pairs));
}

}  // namespace

SG_CLONES void pack_pairs(std::span<const PlacePanels::Piece> pieces, const int64_t* at, int64_t k, const BF16* planes,
                          int64_t width, Bf16Pair* to) {
  const BF16 zeros[kCopyRound] = {};
  for (int64_t i = 0; i < k; i += 2, to += width) {
    const BF16 *first = planes + at[i], *second = i + 1 < k ? planes + at[i + 1] : nullptr;
    Bf16Pair* place = to;
    for (const PlacePanels::Piece& p : pieces) {
      for (int64_t j = 0; j < p.count; j += kCopyRound)
        join(first + p.at + j, second ? second + p.at + j : zeros, place + j);
      place += p.count;
    }
  }
}

}  // namespace sg::cpu
