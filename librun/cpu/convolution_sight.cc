#include "librun/cpu/convolution_sight.h"

#include <algorithm>

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;

// Adds a place of the target with its taps, given as places of the source.
void add_place(std::vector<AxisSight::Tap>* taps, AxisSight* axis) {
  const int64_t base = taps->empty() ? 0 : taps->front().at;
  for (AxisSight::Tap& tap : *taps) tap.at -= base;
  int64_t kind = axis->kind.empty() ? 0 : axis->kind.back();  // usually that of the previous place
  if (axis->kind.empty() || axis->kinds[static_cast<size_t>(kind)] != *taps) {
    kind = std::ranges::find(axis->kinds, *taps) - axis->kinds.begin();
    if (kind == static_cast<int64_t>(axis->kinds.size())) axis->kinds.push_back(*taps);
  }
  axis->base.push_back(base);
  axis->kind.push_back(kind);
}

}  // namespace

std::array<int64_t, 2> AxisSight::seen(int64_t begin, int64_t end) const {
  std::array<int64_t, 2> range{0, 0};
  for (int64_t i = begin; i < end; ++i)
    for (const Tap& tap : kinds[static_cast<size_t>(kind[static_cast<size_t>(i)])]) {
      const int64_t at = base[static_cast<size_t>(i)] + tap.at;
      if (range[1] == 0) range = {at, at + 1};
      range = {std::min(range[0], at), std::max(range[1], at + 1)};
    }
  return range;
}

Sight output_sight(const ConvolutionGeometry& g) {
  Sight sight;
  std::vector<AxisSight::Tap> taps;
  for (size_t d = 0; d < 3; ++d)
    for (int64_t i = 0; i < g.out[d]; ++i, taps.clear()) {
      for (int64_t k = 0; k < g.window[d]; ++k) {
        const int64_t at = i * g.stride[d] - g.padding[d] + k * g.dilation[d];
        if (at >= 0 && at < g.in[d]) taps.push_back({k, at});
      }
      add_place(&taps, &sight[d]);
    }
  return sight;
}

Sight input_sight(const ConvolutionGeometry& g) {
  Sight sight;
  std::vector<AxisSight::Tap> taps;
  for (size_t d = 0; d < 3; ++d)
    for (int64_t i = 0; i < g.in[d]; ++i, taps.clear()) {
      for (int64_t k = 0; k < g.window[d]; ++k) {
        const int64_t at = i + g.padding[d] - k * g.dilation[d];
        if (at >= 0 && at % g.stride[d] == 0 && at / g.stride[d] < g.out[d]) taps.push_back({k, at / g.stride[d]});
      }
      add_place(&taps, &sight[d]);
    }
  return sight;
}

SightTaps::SightTaps(const Sight& sight, const Three& window, const Three& pitch) {
  std::vector<size_t> ends;
  for (size_t d = 0; d < 3; ++d) kinds_[d] = static_cast<int64_t>(sight[d].kinds.size());
  for (const auto& a_taps : sight[0].kinds)
    for (const auto& b_taps : sight[1].kinds)
      for (const auto& c_taps : sight[2].kinds) {
        for (const auto& a : a_taps)
          for (const auto& b : b_taps)
            for (const auto& c : c_taps)
              taps_.push_back({static_cast<int32_t>((a.window * window[1] + b.window) * window[2] + c.window),
                               static_cast<int32_t>(a.at * pitch[0] + b.at * pitch[1] + c.at * pitch[2])});
        ends.push_back(taps_.size());
      }
  size_t begin = 0;
  for (const size_t end : ends) {
    lists_.emplace_back(taps_.data() + begin, end - begin);
    begin = end;
  }
}

}  // namespace sg::cpu
