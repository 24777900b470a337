// Regions of images for detection models (torchvision): boxes that overlap too much are suppressed, and the contents of
// a box are sampled between pixels, a few samples per bin.
//
// Positions are computed in the type of the boxes, as in torchvision, so that a sample exactly at a border is in or out
// as it is there. Samples are summed in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/cpu/stable_order.h"
#include "librun/element.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

// --- boxes ---

template <class C>
struct Box {
  C left, top, right, bottom;
  C area() const { return (right - left) * (bottom - top); }
};

// Intersection over union.
template <class C>
C overlap(const Box<C>& a, const Box<C>& b) {
  const C width = std::max(C{0}, std::min(a.right, b.right) - std::max(a.left, b.left));
  const C height = std::max(C{0}, std::min(a.bottom, b.bottom) - std::max(a.top, b.top));
  const C both = width * height;
  return both / (a.area() + b.area() - both);
}

// Best first; a box is kept unless it overlaps a better one that is kept.
template <class C>
std::vector<int64_t> kept_boxes(const Box<C>* boxes, const std::vector<int64_t>& best_first, double threshold) {
  std::vector<int64_t> kept;
  std::vector<bool> is_gone(best_first.size());
  for (size_t i = 0; i < best_first.size(); ++i) {
    if (is_gone[i]) continue;
    const Box<C>& box = boxes[best_first[i]];
    kept.push_back(best_first[i]);
    for (size_t j = i + 1; j < best_first.size(); ++j)
      if (static_cast<double>(overlap(box, boxes[best_first[j]])) > threshold) is_gone[j] = true;
  }
  return kept;
}

Status nms(KernelCall& call) {
  const Tensor& boxes = call.tensor("dets");
  std::vector<int64_t> order(static_cast<size_t>(boxes.dim(0))), kept;
  const double* scores = contiguous_as(call, call.tensor("scores"), DType::f64).as<double>();
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return order_key(scores[a]) > order_key(scores[b]); });  // NaN first
  visit_compute(boxes.dtype, [&]<class C>() {
    const auto* corners = contiguous_as(call, boxes, kDTypeOf<C>).template as<Box<C>>();
    kept = kept_boxes(corners, order, call.number("iou_threshold"));
  });
  SG_TRY(result_of_shape(call, 0, std::array{static_cast<int64_t>(kept.size())}));
  const Tensor& out = call.result();
  for (size_t i = 0; i < kept.size(); ++i) out.as<int64_t>()[static_cast<int64_t>(i) * out.stride[0]] = kept[i];
  return ok_status();
}

// --- samples of regions ---

// A position between two pixels of a line, and their weights.
template <class C>
struct Sample {
  int64_t low, high;
  C at_low, at_high;
};

// The samples along one axis of one region, bin after bin; those of bin b end at ends[b]. Positions outside the image
// have no sample.
template <class C>
struct Samples {
  std::vector<Sample<C>> list;
  std::vector<size_t> ends;
  C per_bin = 0;  // as many as if all were inside

  std::span<const Sample<C>> bin(size_t b) const {
    const size_t first = b == 0 ? 0 : ends[b - 1];
    return {list.data() + first, ends[b] - first};
  }
};

// Parameters shared by all regions of a call.
struct Sampling {
  double scale;         // from box coordinates to the image
  int64_t ratio;        // samples per bin along an axis; 0 or less: about one per pixel
  bool is_aligned;      // box coordinates refer to the corners of pixels, not to their centres
  int64_t bins[2];      // high, wide
  int64_t image[2];     // high, wide
  int64_t image_count;  // in the batch
};

// Limit along an axis of a region: more would take unreasonably long.
constexpr double kMostSamples = 1 << 24;

template <class C>
void add_sample(C place, int64_t size, std::vector<Sample<C>>* to) {
  if (size == 0 || !(place >= C{-1} && place <= static_cast<C>(size))) return;
  place = std::max(place, C{0});
  const auto low = std::min(static_cast<int64_t>(place), size - 1);
  const int64_t high = std::min(low + 1, size - 1);
  const C rest = low == high ? C{0} : place - static_cast<C>(low);
  to->push_back({low, high, C{1} - rest, rest});
}

// Samples along axis `axis` (0 = down) from `first` to `last`, in box coordinates.
template <class C>
Status sample_axis(const KernelCall& call, const Sampling& s, int axis, C first, C last, Samples<C>* out) {
  const C scale = static_cast<C>(s.scale), offset = s.is_aligned ? C{0.5} : C{0};
  const C start = first * scale - offset;
  C length = last * scale - offset - start;
  if (!s.is_aligned) length = std::max(length, C{1});
  const auto bins = static_cast<C>(s.bins[axis]);
  const C size = length / bins;
  out->per_bin = s.ratio > 0 ? static_cast<C>(s.ratio) : std::ceil(length / bins);
  if (out->per_bin * bins > static_cast<C>(kMostSamples))
    return call.fail("a region is too large: " + std::to_string(static_cast<double>(length)) + " pixels");
  out->list.clear(), out->ends.clear();
  for (int64_t b = 0; b < s.bins[axis]; ++b) {
    for (int64_t i = 0; static_cast<C>(i) < out->per_bin; ++i)
      add_sample(start + static_cast<C>(b) * size + (static_cast<C>(i) + C{0.5}) * size / out->per_bin, s.image[axis],
                 &out->list);
    out->ends.push_back(out->list.size());
  }
  return ok_status();
}

// One row of `rois`: the index of an image, and a box in it.
template <class C>
struct RegionSamples {
  int64_t image = 0;
  Samples<C> down, across;
  C count() const { return std::max(down.per_bin * across.per_bin, C{1}); }  // per bin
};

template <class C>
Result<std::vector<RegionSamples<C>>> sample_regions(KernelCall& call, const Sampling& s) {
  const Tensor& rois = call.tensor("rois");
  const C* row = contiguous_as(call, rois, kDTypeOf<C>).template as<C>();
  std::vector<RegionSamples<C>> out(static_cast<size_t>(rois.dim(0)));
  for (RegionSamples<C>& region : out) {
    if (!(row[0] >= 0 && row[0] < static_cast<C>(s.image_count)))
      return call.fail("a region is of image " + std::to_string(static_cast<double>(row[0])) + ", and there are " +
                       std::to_string(s.image_count));
    region.image = static_cast<int64_t>(row[0]);
    SG_TRY(sample_axis(call, s, 0, row[2], row[4], &region.down));
    SG_TRY(sample_axis(call, s, 1, row[1], row[3], &region.across));
    row += 5;
  }
  return out;
}

Sampling sampling_of(const KernelCall& call, int64_t images, int64_t height, int64_t width) {
  return {call.number("spatial_scale"),
          call.integer("sampling_ratio"),
          call.flag("aligned"),
          {call.integer("pooled_height"), call.integer("pooled_width")},
          {height, width},
          images};
}

// Calls fn(down, across) for each sample of a bin, in image order.
template <class C, class Fn>
void for_samples(const RegionSamples<C>& region, int64_t row, int64_t column, const Fn& fn) {
  for (const Sample<C>& down : region.down.bin(static_cast<size_t>(row)))
    for (const Sample<C>& across : region.across.bin(static_cast<size_t>(column))) fn(down, across);
}

template <class C>
double mean_of_bin(const RegionSamples<C>& region, int64_t row, int64_t column, const C* plane, int64_t width) {
  double sum = 0;
  for_samples(region, row, column, [&](const Sample<C>& down, const Sample<C>& across) {
    const C *top = plane + down.low * width, *bottom = plane + down.high * width;
    sum += static_cast<double>(down.at_low * across.at_low) * static_cast<double>(top[across.low]) +
           static_cast<double>(down.at_low * across.at_high) * static_cast<double>(top[across.high]) +
           static_cast<double>(down.at_high * across.at_low) * static_cast<double>(bottom[across.low]) +
           static_cast<double>(down.at_high * across.at_high) * static_cast<double>(bottom[across.high]);
  });
  return sum / static_cast<double>(region.count());
}

// [regions, channels, bins down, bins across]: the mean of each bin's samples.
template <class C>
Status mean_of_regions(KernelCall& call) {
  const Tensor &input = call.tensor("input"), &result = call.result();
  if (result.elements() == 0) return ok_status();
  const Sampling s = sampling_of(call, input.dim(0), input.dim(2), input.dim(3));
  SG_ASSIGN(const auto regions, sample_regions<C>(call, s));
  const C* planes = contiguous_as(call, input, kDTypeOf<C>).template as<C>();
  const Tensor out = call.scratch().tensor(kDTypeOf<C>, result.sizes());
  const int64_t channels = input.dim(1), plane = s.image[0] * s.image[1], bins = s.bins[0] * s.bins[1];
  for_rows(call, static_cast<int64_t>(regions.size()) * channels, 16 * bins, [&](int64_t task, int) {
    const RegionSamples<C>& region = regions[static_cast<size_t>(task / channels)];
    const C* from = planes + (region.image * channels + task % channels) * plane;
    C* to = out.as<C>() + task * bins;
    for (int64_t b = 0; b < bins; ++b)
      to[b] = static_cast<C>(mean_of_bin(region, b / s.bins[1], b % s.bins[1], from, s.image[1]));
  });
  copy(call, result, out);
  return ok_status();
}

// Adds a bin's gradient to those of the pixels around its samples.
template <class C>
void spread_bin(const RegionSamples<C>& region, int64_t row, int64_t column, double gradient, double* plane,
                int64_t width) {
  const double each = gradient / static_cast<double>(region.count());
  for_samples(region, row, column, [&](const Sample<C>& down, const Sample<C>& across) {
    double *top = plane + down.low * width, *bottom = plane + down.high * width;
    top[across.low] += each * static_cast<double>(down.at_low * across.at_low);
    top[across.high] += each * static_cast<double>(down.at_low * across.at_high);
    bottom[across.low] += each * static_cast<double>(down.at_high * across.at_low);
    bottom[across.high] += each * static_cast<double>(down.at_high * across.at_high);
  });
}

// A plane at a time, region after region, so that the order of sums does not depend on the number of threads.
template <class C>
Status gradient_of_regions(KernelCall& call) {
  const Tensor& result = call.result();
  if (result.elements() == 0) return ok_status();
  const int64_t channels = result.dim(1), plane = result.dim(2) * result.dim(3);
  const Sampling s = sampling_of(call, result.dim(0), result.dim(2), result.dim(3));
  SG_ASSIGN(const auto regions, sample_regions<C>(call, s));
  const C* gradients = contiguous_as(call, call.tensor("grad"), kDTypeOf<C>).template as<C>();
  const Tensor sums = call.scratch().tensor(DType::f64, result.sizes());
  const int64_t bins = s.bins[0] * s.bins[1];
  for_rows(call, result.dim(0) * channels, 16 * plane, [&](int64_t task, int) {
    double* to = sums.as<double>() + task * plane;
    std::fill_n(to, plane, 0.0);
    for (size_t r = 0; r < regions.size(); ++r) {
      if (regions[r].image != task / channels) continue;
      const C* from = gradients + (static_cast<int64_t>(r) * channels + task % channels) * bins;
      for (int64_t b = 0; b < bins; ++b)
        spread_bin(regions[r], b / s.bins[1], b % s.bins[1], static_cast<double>(from[b]), to, s.image[1]);
    }
  });
  copy(call, result, sums);
  return ok_status();
}

Status roi_align(KernelCall& call) {
  const bool is_double = call.tensor("input").dtype == DType::f64;
  return is_double ? mean_of_regions<double>(call) : mean_of_regions<float>(call);
}

Status roi_align_backward(KernelCall& call) {
  const bool is_double = call.result().dtype == DType::f64;
  return is_double ? gradient_of_regions<double>(call) : gradient_of_regions<float>(call);
}

constexpr KernelRow kRows[] = {
    {"torchvision.nms.default", nms},
    {"torchvision.roi_align.default", roi_align},
    {"torchvision._roi_align_backward.default", roi_align_backward},
};

}  // namespace

std::span<const KernelRow> region_kernels() { return kRows; }

}  // namespace sg::cpu
