// Upsampling (nearest, linear, cubic and Lanczos, with and without antialiasing), padding from the input's own
// elements, and the gradients of both.
#include <algorithm>
#include <cmath>

#include "librun/any_device/resample.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/work/resample.h"
#include "librun/work/run.h"
#include "librun/work/special.h"

namespace sg::cpu {
namespace {

// How one axis is resampled.
struct Axis {
  int64_t in, out;
  double scale;  // as the caller gave it: out / in; 0 = not given
  bool aligned;  // align_corners
};

// Input positions per position of the result, as PyTorch computes it.
double step_of(const Axis& a) {
  if (a.aligned) return a.out > 1 ? static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0;
  return a.scale > 0 ? 1 / a.scale : static_cast<double>(a.in) / static_cast<double>(a.out);
}

// In float, as in PyTorch for every element type: rounding decides which neighbour is nearest.
int64_t nearest(const Axis& a, int64_t i, bool exact) {
  if (!exact && a.in == a.out) return i;
  if (!exact && a.out == 2 * a.in) return i >> 1;
  float step = a.scale > 0 ? static_cast<float>(1.0 / a.scale) : static_cast<float>(a.in) / static_cast<float>(a.out);
  float at = exact ? static_cast<float>((static_cast<double>(i) + 0.5) * static_cast<double>(step))
                   : static_cast<float>(i) * step;
  return std::clamp<int64_t>(static_cast<int64_t>(std::floor(at)), 0, a.in - 1);
}

Taps nearest_taps(const Axis& a, bool exact) {
  Taps taps;
  taps.in = a.in;
  for (int64_t i = 0; i < a.out; ++i) taps.add(nearest(a, i, exact), 1), taps.end_position();
  return taps;
}

Taps linear_taps(const Axis& a) {
  Taps taps;
  taps.in = a.in;
  double step = step_of(a);
  for (int64_t i = 0; i < a.out; ++i) {
    double at = a.aligned ? step * static_cast<double>(i) : std::max(0.0, step * (static_cast<double>(i) + 0.5) - 0.5);
    int64_t low = std::min(static_cast<int64_t>(at), a.in - 1);
    double share = std::clamp(at - static_cast<double>(low), 0.0, 1.0);
    if (a.in == a.out) low = i, share = 0;
    if (share == 0) taps.add(low, 1);
    else taps.add(low, 1 - share), taps.add(std::min(low + 1, a.in - 1), share);
    taps.end_position();
  }
  return taps;
}

// Keys' kernel at a distance; `c` is -0.75 for plain and -0.5 for antialiased interpolation.
double cubic_weight(double x, double c) {
  x = std::abs(x);
  if (x < 1) return ((c + 2) * x - (c + 3)) * x * x + 1;
  return x < 2 ? ((c * x - 5 * c) * x + 8 * c) * x - 4 * c : 0;
}

Taps cubic_taps(const Axis& a) {
  Taps taps;
  taps.in = a.in;
  double step = step_of(a);
  for (int64_t i = 0; i < a.out; ++i) {
    double at = a.aligned ? step * static_cast<double>(i) : step * (static_cast<double>(i) + 0.5) - 0.5;
    auto low = std::min(static_cast<int64_t>(std::floor(at)), a.in - 1);
    double share = std::clamp(at - static_cast<double>(low), 0.0, 1.0);
    for (int64_t k = -1; k <= 2; ++k)
      taps.add(std::clamp<int64_t>(low + k, 0, a.in - 1), cubic_weight(static_cast<double>(k) - share, -0.75));
    taps.end_position();
  }
  return taps;
}

// A weight by the distance, 0 from `support` on.
struct Smooth {
  double support;
  double (*weight)(double x);
};

constexpr Smooth kSmoothLinear{1, [](double x) { return std::max(0.0, 1 - std::abs(x)); }};
constexpr Smooth kSmoothCubic{2, [](double x) { return cubic_weight(x, -0.5); }};
constexpr Smooth kSmoothLanczos{3, [](double x) { return std::abs(x) < 3 ? math::sinc(x) * math::sinc(x / 3) : 0; }};

// Antialiased: when downsampling, the kernel is widened by the step.
Taps smooth_taps(const Axis& a, const Smooth& smooth) {
  Taps taps;
  taps.in = a.in;
  double step = step_of(a), wide = std::max(step, 1.0), support = smooth.support * wide;
  for (int64_t i = 0; i < a.out; ++i) {
    double center = step * (static_cast<double>(i) + 0.5);
    int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), a.in);
    std::vector<double> weights;
    double total = 0;
    for (int64_t k = first; k < end; ++k) {
      double x = (static_cast<double>(k) - center + 0.5) / wide;
      weights.push_back(smooth.weight(x));
      total += weights.back();
    }
    for (int64_t k = first; k < end; ++k) taps.add(k, total == 0 ? 0 : weights[static_cast<size_t>(k - first)] / total);
    taps.end_position();
  }
  return taps;
}

enum class Kind { nearest, nearest_exact, linear, cubic, smooth_linear, smooth_cubic, smooth_lanczos };

Taps taps_of(Kind kind, const Axis& a) {
  switch (kind) {
    case Kind::nearest: return nearest_taps(a, false);
    case Kind::nearest_exact: return nearest_taps(a, true);
    case Kind::linear: return linear_taps(a);
    case Kind::cubic: return cubic_taps(a);
    case Kind::smooth_linear: return smooth_taps(a, kSmoothLinear);
    case Kind::smooth_cubic: return smooth_taps(a, kSmoothCubic);
    default: return smooth_taps(a, kSmoothLanczos);
  }
}

// The scale of axis k (of `axes`): scales, scales_d/_h/_w or an item of scale_factors.
double scale_of(KernelCall& call, int k, int axes) {
  if (call.op().param_index("scale_factors") >= 0) {
    const ParamValue& list = call.param("scale_factors");
    if (list.kind == ParamValue::Kind::absent || list.items.size() != static_cast<size_t>(axes)) return 0;
    return list.items[static_cast<size_t>(k)].scalar.to_double();
  }
  constexpr std::string_view kNames[] = {"scales_d", "scales_h", "scales_w"};
  std::string_view name = axes == 1 ? "scales" : kNames[3 - axes + k];
  return call.has(name) ? call.number(name) : 0;
}

// `input` and `output` of the forward op.
Result<std::vector<Taps>> taps_of(KernelCall& call, Kind kind, const Tensor& input, const Tensor& output) {
  int axes = plane_axes(call);
  bool aligned = call.op().param_index("align_corners") >= 0 && call.flag("align_corners");
  std::vector<Taps> taps;
  for (int k = 0; k < axes; ++k) {
    Axis a{input.dim(2 + k), output.dim(2 + k), scale_of(call, k, axes), aligned};
    bool wild =
        a.out > 0 && a.scale > 0 && 1 / a.scale > 4 * (static_cast<double>(a.in) / static_cast<double>(a.out) + 1);
    if (wild) return call.fail("a scale does not fit the sizes of its axis");
    taps.push_back(taps_of(kind, a));
  }
  return taps;
}

Status hold_planes(KernelCall& call, const Tensor& input, const Tensor& output) {
  int rank = plane_axes(call) + 2;
  if (input.rank != rank || output.rank != rank) return call.fail("needs " + std::to_string(rank) + " dimensions");
  for (int i = 2; i < rank; ++i)
    if (input.dim(i) < 1) return call.fail("the planes have no elements");
  return ok_status();
}

// Integers (images of bytes) are interpolated in double and rounded to the nearest.
Status rounded_resample(KernelCall& call, const Tensor& input, const std::vector<Taps>& taps) {
  const Tensor& out = call.result();
  Tensor sums = workspace(call, DType::f64, out.sizes());
  SG_TRY(resample(call, sums, input, taps));
  for_each(call, sums.elements(), 1 << 14, work::RoundToByte{sums.as<double>()});
  copy(call, out, sums);
  return ok_status();
}

template <Kind kind>
Status upsample(KernelCall& call) {
  const Tensor& input = call.params()[0].tensor;
  SG_TRY(hold_planes(call, input, call.result()));
  SG_ASSIGN(std::vector<Taps> taps, taps_of(call, kind, input, call.result()));
  if (kind == Kind::nearest || kind == Kind::nearest_exact) return pick(call, call.result(), input, taps);
  if (!is_floating(input.dtype)) return rounded_resample(call, input, taps);
  return resample(call, call.result(), input, taps);
}

template <Kind kind>
Status upsample_backward(KernelCall& call) {
  const Tensor& grad = call.tensor("grad_output");
  SG_TRY(hold_planes(call, call.result(), grad));
  SG_ASSIGN(std::vector<Taps> taps, taps_of(call, kind, call.result(), grad));
  for (Taps& t : taps) t = transposed(t);
  return resample(call, call.result(), grad, taps);
}

// --- pads ---

enum class PadMode { reflect, replicate, circular };

Result<std::vector<Taps>> pad_taps(KernelCall& call, const Tensor& input, std::span<const int64_t> padding,
                                   PadMode mode) {
  int axes = static_cast<int>(padding.size() / 2);
  bool reflects = mode == PadMode::reflect;
  if (padding.size() % 2 != 0 || input.rank < axes) return call.fail("'padding' needs two numbers per axis");
  std::vector<Taps> taps(static_cast<size_t>(axes));
  for (int k = 0; k < axes; ++k) {
    Taps& t = taps[static_cast<size_t>(k)];
    t.in = input.dim(input.rank - axes + k);
    size_t pair = static_cast<size_t>(2 * (axes - 1 - k));
    int64_t before = padding[pair], size = t.in + before + padding[pair + 1];
    if (t.in < 1 || (reflects && (before >= t.in || padding[pair + 1] >= t.in)))
      return call.fail("the padding has to be less than the axis");
    if (mode == PadMode::circular && (before > t.in || padding[pair + 1] > t.in))
      return call.fail("the padding is more than the axis");
    for (int64_t i = 0; i < size; ++i) {
      int64_t at = i - before;
      if (reflects) at = at < 0 ? -at : at >= t.in ? 2 * (t.in - 1) - at : at;
      if (mode == PadMode::circular) at = at < 0 ? at + t.in : at >= t.in ? at - t.in : at;
      t.add(std::clamp<int64_t>(at, 0, t.in - 1), 1), t.end_position();
    }
  }
  return taps;
}

Result<std::vector<Taps>> pad_taps(KernelCall& call, const Tensor& input, bool reflects) {
  std::span<const int64_t> padding = call.integers("padding");
  if (padding.size() != static_cast<size_t>(2 * plane_axes(call)))
    return call.fail("'padding' needs two numbers per axis");
  return pad_taps(call, input, padding, reflects ? PadMode::reflect : PadMode::replicate);
}

// aten.pad; constant padding is a kernel of its own.
Status pad_by_mode(KernelCall& call) {
  std::string_view mode = call.text("mode");
  if (mode == "constant") return constant_pad(call);
  PadMode how = mode == "reflect" ? PadMode::reflect : mode == "circular" ? PadMode::circular : PadMode::replicate;
  SG_ASSIGN(std::vector<Taps> taps, pad_taps(call, call.tensor("self"), call.integers("pad"), how));
  return pick(call, call.result(), call.tensor("self"), taps);
}

template <bool reflects>
Status pad(KernelCall& call) {
  SG_ASSIGN(std::vector<Taps> taps, pad_taps(call, call.tensor("self"), reflects));
  return pick(call, call.result(), call.tensor("self"), taps);
}

template <bool reflects>
Status pad_backward(KernelCall& call) {
  SG_ASSIGN(std::vector<Taps> taps, pad_taps(call, call.result(), reflects));
  for (Taps& t : taps) t = transposed(t);
  return resample(call, call.result(), call.tensor("grad_output"), taps);
}

constexpr KernelRow kRows[] = {
    {"aten.upsample_nearest1d.default", upsample<Kind::nearest>},
    {"aten.upsample_nearest1d.vec", upsample<Kind::nearest>},
    {"aten.upsample_nearest2d.default", upsample<Kind::nearest>},
    {"aten.upsample_nearest2d.vec", upsample<Kind::nearest>},
    {"aten.upsample_nearest3d.default", upsample<Kind::nearest>},
    {"aten.upsample_nearest3d.vec", upsample<Kind::nearest>},
    {"aten._upsample_nearest_exact1d.default", upsample<Kind::nearest_exact>},
    {"aten._upsample_nearest_exact1d.vec", upsample<Kind::nearest_exact>},
    {"aten._upsample_nearest_exact2d.default", upsample<Kind::nearest_exact>},
    {"aten._upsample_nearest_exact2d.vec", upsample<Kind::nearest_exact>},
    {"aten._upsample_nearest_exact3d.default", upsample<Kind::nearest_exact>},
    {"aten._upsample_nearest_exact3d.vec", upsample<Kind::nearest_exact>},
    {"aten.upsample_linear1d.default", upsample<Kind::linear>},
    {"aten.upsample_linear1d.vec", upsample<Kind::linear>},
    {"aten.upsample_bilinear2d.default", upsample<Kind::linear>},
    {"aten.upsample_bilinear2d.vec", upsample<Kind::linear>},
    {"aten.upsample_trilinear3d.default", upsample<Kind::linear>},
    {"aten.upsample_trilinear3d.vec", upsample<Kind::linear>},
    {"aten.upsample_bicubic2d.default", upsample<Kind::cubic>},
    {"aten.upsample_bicubic2d.vec", upsample<Kind::cubic>},
    {"aten._upsample_bilinear2d_aa.default", upsample<Kind::smooth_linear>},
    {"aten._upsample_bilinear2d_aa.vec", upsample<Kind::smooth_linear>},
    {"aten._upsample_bicubic2d_aa.default", upsample<Kind::smooth_cubic>},
    {"aten._upsample_lanczos2d_aa.default", upsample<Kind::smooth_lanczos>},
    {"aten._upsample_bicubic2d_aa.vec", upsample<Kind::smooth_cubic>},
    {"aten._upsample_lanczos2d_aa.vec", upsample<Kind::smooth_lanczos>},
    {"aten.upsample_nearest1d_backward.default", upsample_backward<Kind::nearest>},
    {"aten.upsample_nearest2d_backward.default", upsample_backward<Kind::nearest>},
    {"aten.upsample_nearest3d_backward.default", upsample_backward<Kind::nearest>},
    {"aten._upsample_nearest_exact1d_backward.default", upsample_backward<Kind::nearest_exact>},
    {"aten._upsample_nearest_exact2d_backward.default", upsample_backward<Kind::nearest_exact>},
    {"aten._upsample_nearest_exact3d_backward.default", upsample_backward<Kind::nearest_exact>},
    {"aten.upsample_linear1d_backward.default", upsample_backward<Kind::linear>},
    {"aten.upsample_bilinear2d_backward.default", upsample_backward<Kind::linear>},
    {"aten.upsample_trilinear3d_backward.default", upsample_backward<Kind::linear>},
    {"aten.upsample_bicubic2d_backward.default", upsample_backward<Kind::cubic>},
    {"aten._upsample_bilinear2d_aa_backward.default", upsample_backward<Kind::smooth_linear>},
    {"aten._upsample_bicubic2d_aa_backward.default", upsample_backward<Kind::smooth_cubic>},
    {"aten._upsample_lanczos2d_aa_backward.default", upsample_backward<Kind::smooth_lanczos>},
    {"aten.pad.default", pad_by_mode},
    {"aten.reflection_pad1d.default", pad<true>},
    {"aten.reflection_pad2d.default", pad<true>},
    {"aten.reflection_pad3d.default", pad<true>},
    {"aten.replication_pad1d.default", pad<false>},
    {"aten.replication_pad2d.default", pad<false>},
    {"aten.replication_pad3d.default", pad<false>},
    {"aten.reflection_pad1d_backward.default", pad_backward<true>},
    {"aten.reflection_pad2d_backward.default", pad_backward<true>},
    {"aten.reflection_pad3d_backward.default", pad_backward<true>},
    {"aten.replication_pad1d_backward.default", pad_backward<false>},
    {"aten.replication_pad2d_backward.default", pad_backward<false>},
    {"aten.replication_pad3d_backward.default", pad_backward<false>},
};

}  // namespace

std::span<const KernelRow> upsample_kernels() { return kRows; }

}  // namespace sg::cpu
