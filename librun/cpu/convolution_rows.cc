#include "librun/cpu/convolution_rows.h"

#include <algorithm>
#include <cstring>

#include "librun/cpu/gemm_pack.h"

namespace sg::cpu {
namespace {

constexpr int64_t kPlaneElements = 1 << 12;  // of one entry: limit for the planes of the channels packed together
constexpr int64_t kUnit = 4;                 // elements copied at a time
constexpr int64_t kSquare = 16;              // channels transposed at a time

int64_t rounded(int64_t count) { return (count + kUnit - 1) / kUnit * kUnit; }

// Columns that are contiguous in the planes: from `at`, to position `to` of a packed row.
struct TapRun {
  int64_t at, to, count;
};
struct TapRuns {
  std::vector<TapRun> all;
  size_t rounded = 0;  // the first ones, which may write a few elements too many
};

// For channels [from, from + count). No run crosses a block.
TapRuns tap_runs(const PlaneLayout& layout, int64_t from, int64_t count, int64_t block_step) {
  TapRuns runs;
  const auto taps = static_cast<int64_t>(layout.taps.size());
  int64_t k = from * taps, begin = k;
  for (int64_t c = 0; c < count; ++c)
    for (const int64_t tap : layout.taps) {
      const int64_t at = c * layout.channel + tap;
      const bool goes_on = !runs.all.empty() && k % kSumBlock != 0 && at == runs.all.back().at + k - begin;
      if (!goes_on) {
        begin = k;
        runs.all.push_back({at, k / kSumBlock * block_step + k % kSumBlock, 0});
      }
      runs.all.back().count = ++k - begin;
    }
  // Excess elements are overwritten by the next run, or lie beyond a block; columns of other channels are not touched.
  k = from * taps;
  for (const TapRun& run : runs.all) {
    if (k + rounded(run.count) > (from + count) * taps) break;
    ++runs.rounded, k += run.count;
  }
  return runs;
}

template <class T>
void copy_row(const TapRuns& runs, const T* planes, T* to) {
  for (size_t i = 0; i < runs.rounded; ++i) {
    const TapRun& run = runs.all[i];
    for (int64_t j = 0; j < run.count; j += kUnit) std::memcpy(to + run.to + j, planes + run.at + j, kUnit * sizeof(T));
  }
  for (size_t i = runs.rounded; i < runs.all.size(); ++i)
    std::copy_n(planes + runs.all[i].at, runs.all[i].count, to + runs.all[i].to);
}

// The entries, or the lines of one entry, that contain places [first, first + rows) of the box; `first` becomes
// relative to them.
PlaceBox seen_by(const PlaceBox& box, int64_t* first, int64_t rows) {
  PlaceBox seen = box;
  const int64_t entry = *first / box.places(), last = (*first + rows - 1) / box.places();
  seen.entry += entry, seen.entries = last + 1 - entry;
  *first -= entry * box.places();
  if (seen.entries > 1 || box.size[0] > 1) return seen;
  const int64_t line = *first / box.size[2];
  seen.begin[1] += line, seen.size[1] = (*first + rows - 1) / box.size[2] + 1 - line;
  *first -= line * box.size[2];
  return seen;
}

// Rows of a single tap are transposed planes.
template <class T>
void turn_planes(const TileKernels<T>& kernels, const T* planes, int64_t channel_step, int64_t places, int64_t from,
                 int64_t count, PackedPlaces<T> to) {
  for (int64_t k = from, columns = 0; k < from + count; k += columns) {
    columns = std::min(from + count - k, kSumBlock - k % kSumBlock);
    const MatrixView part{reinterpret_cast<const std::byte*>(planes + (k - from) * channel_step), kTileType<T>, 1,
                          channel_step};
    pack_block(kernels, part, places, columns, to.to + k / kSumBlock * to.block_step + k % kSumBlock, kPackedRow);
  }
}

}  // namespace

template <class T>
PlaceRows<T>::PlaceRows(const ConvolutionTargets& t, const PlaceBox& largest)
    : t_(t), kernels_(tile_kernels<T>(best_isa())), taps_(t.taps()) {
  together_ = kPlaneElements / PlaneLayout(t, largest, 1).channel;
  together_ = std::max(kSquare, together_ / kSquare * kSquare);
  planes_size_ = PlaneLayout(t, largest, together_).elements;
}

template <class T>
void PlaceRows<T>::pack_channels(const PlaceRange& range, const PlaceSource& source, int64_t from, int64_t count,
                                 T* planes, PackedPlaces<T> to) const {
  int64_t first = range.first;
  const PlaceBox seen = seen_by(range.box, &first, range.count);
  const PlaneLayout layout(t_, seen, count);
  fill_planes(t_, seen, layout, {source.size, source.image, source.channel + from, count}, planes);
  const TapRuns runs = taps_ == 1 ? TapRuns() : tap_runs(layout, from, count, to.block_step);
  const std::vector<PlaceRun> places = place_runs(seen, first, range.count);
  for (size_t i = 0; i < places.size();) {
    auto at = [&](const PlaceRun& p) { return layout.line(p.entry, p.place[0], p.place[1]) + p.place[2]; };
    const int64_t begin = at(places[i]);
    int64_t length = 0;  // including lines that follow immediately
    for (; i < places.size() && at(places[i]) == begin + length; ++i) length += places[i].count;
    if (taps_ == 1) turn_planes(kernels_, planes + begin, layout.channel, length, from, count, to);
    for (int64_t c = 0; taps_ > 1 && c < length; ++c) copy_row(runs, planes + begin + c, to.to + c * kPackedRow);
    to.to += length * kPackedRow;
  }
}

template class PlaceRows<float>;
template class PlaceRows<double>;

}  // namespace sg::cpu
