#include "librun/cpu/convolution_rows.h"

#include <algorithm>
#include <cstring>

namespace sg::cpu {
namespace {

constexpr int64_t kPlaneElements = 1 << 12;  // that a task's planes of one entry should not exceed
constexpr int64_t kUnit = 4;                 // elements that are copied at a time

int64_t rounded(int64_t count) { return (count + kUnit - 1) / kUnit * kUnit; }

template <class T, class Runs>
void copy_row(const Runs& runs, const T* planes, T* to) {
  for (size_t i = 0; i < runs.rounded; ++i) {
    const auto& run = runs.all[i];
    for (int64_t j = 0; j < run.count; j += kUnit) std::memcpy(to + run.to + j, planes + run.at + j, kUnit * sizeof(T));
  }
  for (size_t i = runs.rounded; i < runs.all.size(); ++i)
    std::copy_n(planes + runs.all[i].at, runs.all[i].count, to + runs.all[i].to);
}

}  // namespace

template <class T>
PlaceRows<T>::PlaceRows(KernelCall& call, const ConvolutionTargets& t, const PlaceBox& largest, int64_t channels,
                        int64_t rows)
    : call_(call), t_(t), taps_(t.taps()), depth_(channels * t.taps()), most_(rows), channels_(channels) {
  const int64_t elements = PlaneLayout(t, largest, 1).channel;
  const int64_t threads = call.team().size(), share = (channels + threads - 1) / threads;
  together_ = std::clamp<int64_t>(kPlaneElements / elements, 1, std::max<int64_t>(share, 1));
  packed_ = call.scratch().template take<T>(blocks() * rows * kPackedRow);
  const PlaneLayout layout(t, largest, together_);
  for (int64_t i = 0; i < threads; ++i) planes_.push_back(call.scratch().template take<T>(layout.elements));
}

template <class T>
void PlaceRows<T>::fill(const PlaceBox& box, const std::array<int64_t, 3>& source, const Image& image, int64_t channel,
                        int64_t first, int64_t rows) {
  PlaceBox seen = box;  // the entries that these places are of
  seen.entry += first / box.places();
  seen.entries = (first + rows - 1) / box.places() + 1 - first / box.places();
  const std::vector<PlaceRun> places = place_runs(seen, first % box.places(), rows);
  const int64_t tasks = (channels_ + together_ - 1) / together_;
  call_.team().parallel_for_indexed(tasks, 1, [&](int thread, int64_t begin, int64_t end) {
    T* planes = planes_[static_cast<size_t>(thread)];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t from = task * together_, count = std::min(together_, channels_ - from);
      const PlaneLayout layout(t_, seen, count);
      fill_planes(t_, seen, layout, source, image, channel + from, count, planes);
      const Runs runs = runs_of(layout, from, count);
      T* row = packed_;
      for (const PlaceRun& p : places)
        for (int64_t c = 0; c < p.count; ++c, row += kPackedRow)
          copy_row(runs, planes + layout.line(p.entry, p.place[0], p.place[1]) + p.place[2] + c, row);
    }
  });
  for (int64_t k = depth_ - (blocks() - 1) * kSumBlock; depth_ > 0 && k % kMaxTileColumns != 0; ++k)
    for (int64_t row = 0; row < rows; ++row) packed_[((blocks() - 1) * most_ + row) * kPackedRow + k] = T(0);
}

// No run goes beyond a block.
template <class T>
typename PlaceRows<T>::Runs PlaceRows<T>::runs_of(const PlaneLayout& layout, int64_t channel, int64_t channels) const {
  Runs runs;
  const int64_t end = (channel + channels) * taps_;
  int64_t k = channel * taps_, begin = k;
  for (int64_t c = 0; c < channels; ++c)
    for (const int64_t tap : layout.taps) {
      const int64_t at = c * layout.channel + tap;
      const bool goes_on = !runs.all.empty() && k % kSumBlock != 0 && at == runs.all.back().at + k - begin;
      if (!goes_on) {
        begin = k;
        runs.all.push_back({at, k / kSumBlock * most_ * kPackedRow + k % kSumBlock, 0});
      }
      runs.all.back().count = ++k - begin;
    }
  // Too much is written over by the next run, or lies behind a block; the next task's is left alone.
  k = channel * taps_;
  for (const Run& run : runs.all) {
    if (k + rounded(run.count) > end) break;
    ++runs.rounded, k += run.count;
  }
  return runs;
}

template class PlaceRows<float>;
template class PlaceRows<double>;

}  // namespace sg::cpu
