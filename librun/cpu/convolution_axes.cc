#include "librun/cpu/convolution_axes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace sg::cpu {
namespace {

using Axes = std::array<ConvolutionAxis, 3>;

// Planes shared by all taps also hold everything between their offsets. If that is much more than the places see, they
// are not shared.
void part_wide_taps(ConvolutionAxis* axis) {
  if (axis->reach > 2 * axis->places + 16) part_taps(axis);
}

ConvolutionAxis output_axis(const ConvolutionGeometry& g, size_t d) {
  ConvolutionAxis axis;
  axis.places = g.out[d];
  axis.source_step = g.stride[d];
  std::map<int64_t, int64_t> planes;  // by origin
  for (int64_t k = 0; k < g.window[d]; ++k) {
    const int64_t at = k * g.dilation[d], origin = at % g.stride[d] - g.padding[d];
    auto [plane, added] = planes.emplace(origin, axis.planes());
    if (added) axis.origins.push_back(origin);
    axis.taps.push_back({k, plane->second, at / g.stride[d]});
    axis.reach = std::max(axis.reach, at / g.stride[d]);
  }
  part_wide_taps(&axis);
  return axis;
}

// The elements i with i + padding = place * stride + rest; `windows` are the window positions through which they are
// seen.
ConvolutionAxis input_axis(const ConvolutionGeometry& g, size_t d, int64_t rest, const std::vector<int64_t>& windows) {
  const int64_t stride = g.stride[d], begin = std::max<int64_t>(0, g.padding[d] - rest + stride - 1) / stride;
  ConvolutionAxis axis;
  axis.step = stride;
  axis.first = begin * stride + rest - g.padding[d];
  axis.places = axis.first >= g.in[d] ? 0 : (g.in[d] - 1 - axis.first) / stride + 1;
  auto seen = [&](int64_t k) { return begin - k * g.dilation[d] / stride; };
  axis.origins = {seen(windows.back())};  // the last window position sees the first elements
  for (int64_t k : windows) axis.taps.push_back({k, 0, seen(k) - axis.origins[0]});
  axis.reach = axis.taps[0].offset;
  part_wide_taps(&axis);
  return axis;
}

std::vector<ConvolutionAxis> input_axes(const ConvolutionGeometry& g, size_t d) {
  std::map<int64_t, std::vector<int64_t>> by_rest;
  for (int64_t k = 0; k < g.window[d]; ++k) by_rest[k * g.dilation[d] % g.stride[d]].push_back(k);
  std::vector<ConvolutionAxis> out;
  for (const auto& [rest, windows] : by_rest)
    if (ConvolutionAxis axis = input_axis(g, d, rest, windows); axis.places > 0) out.push_back(std::move(axis));
  return out;
}

ConvolutionTargets::Variant variant_of(const ConvolutionGeometry& g, const Axes& axes) {
  ConvolutionTargets::Variant v{{axes[0].first, axes[1].first, axes[2].first}, {}};
  for (const auto& a : axes[0].taps)
    for (const auto& b : axes[1].taps)
      for (const auto& c : axes[2].taps)
        v.windows.push_back((a.window * g.window[1] + b.window) * g.window[2] + c.window);
  for (size_t i = 0; i < v.windows.size(); ++i)
    v.is_whole = v.windows[i] == static_cast<int64_t>(i) && (i == 0 || v.is_whole);
  return v;
}

bool same_sight(const ConvolutionAxis& a, const ConvolutionAxis& b) {
  auto same_tap = [](const auto& s, const auto& t) { return s.plane == t.plane && s.offset == t.offset; };
  return a.places == b.places && a.origins == b.origins && std::ranges::equal(a.taps, b.taps, same_tap);
}

}  // namespace

void part_taps(ConvolutionAxis* axis) {
  std::vector<int64_t> origins;
  for (ConvolutionAxis::Tap& tap : axis->taps) {
    origins.push_back(axis->origins[static_cast<size_t>(tap.plane)] + tap.offset * axis->source_step);
    tap.plane = static_cast<int64_t>(origins.size()) - 1, tap.offset = 0;
  }
  axis->origins = std::move(origins);
  axis->reach = 0;
}

ConvolutionTargets output_targets(const ConvolutionGeometry& g) {
  Axes axes{output_axis(g, 0), output_axis(g, 1), output_axis(g, 2)};
  return {axes, {variant_of(g, axes)}};
}

std::vector<ConvolutionTargets> input_targets(const ConvolutionGeometry& g) {
  const std::array<std::vector<ConvolutionAxis>, 3> of{input_axes(g, 0), input_axes(g, 1), input_axes(g, 2)};
  std::vector<ConvolutionTargets> out;
  for (const ConvolutionAxis& a : of[0])
    for (const ConvolutionAxis& b : of[1])
      for (const ConvolutionAxis& c : of[2]) {
        bool same = !out.empty() && same_sight(out.back().axes[0], a) && same_sight(out.back().axes[1], b) &&
                    same_sight(out.back().axes[2], c);
        if (!same) out.push_back({{a, b, c}, {}});
        out.back().variants.push_back(variant_of(g, {a, b, c}));
      }
  return out;
}

}  // namespace sg::cpu
