// Pooling over windows of the last one to three axes, and its gradients. Planes with fewer axes get leading axes of
// size 1.
#include <algorithm>
#include <cmath>
#include <limits>

#include "librun/any_device/resample.h"
#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/pool_averages.h"
#include "librun/cpu/pool_channels.h"
#include "librun/cpu/pool_maxima.h"
#include "librun/cpu/rows.h"
#include "librun/work/pool.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

using work::Span;
using work::Spans;
using work::Window;

Status read_axes(KernelCall& call, std::string_view name, int axes, int64_t* to) {
  SG_ASSIGN(std::vector<int64_t> list, numbers_of(call, name, axes, name == "padding" ? 0 : 1));
  std::copy(list.begin(), list.end(), to + (3 - axes));
  return ok_status();
}

// `input` is the tensor before pooling, `pooled` after it.
Result<Window> planes_of(KernelCall& call, const Tensor& input, const Tensor& pooled) {
  int axes = plane_axes(call);
  if (input.rank < axes + 1 || pooled.rank != input.rank) return call.fail("pooling needs planes of channels");
  Window w;
  for (int i = 0; i < input.rank; ++i) {
    int k = i - (input.rank - axes);
    if (k >= 0) {
      w.in[3 - axes + k] = input.dim(i), w.out[3 - axes + k] = pooled.dim(i);
      continue;
    }
    if (input.dim(i) != pooled.dim(i)) return call.fail("the channels differ");
    w.planes *= input.dim(i);
  }
  return w;
}

Result<Window> window_of(KernelCall& call, const Tensor& input, const Tensor& pooled) {
  SG_ASSIGN(Window w, planes_of(call, input, pooled));
  int axes = plane_axes(call);
  SG_TRY(read_axes(call, "kernel_size", axes, w.kernel));
  std::copy_n(w.kernel, 3, w.stride);
  bool strided = call.param("stride").kind == ParamValue::Kind::scalar || !call.integers("stride").empty();
  if (strided) SG_TRY(read_axes(call, "stride", axes, w.stride));
  SG_TRY(read_axes(call, "padding", axes, w.padding));
  SG_TRY(read_axes(call, "dilation", axes, w.dilation));
  for (size_t k = 0; k < 3; ++k)
    if (w.kernel[k] <= 0 || w.stride[k] <= 0 || w.dilation[k] <= 0 || w.padding[k] < 0)
      return call.fail("a window needs sizes and steps of at least 1");
  return w;
}

// Integers are compared and summed as 64 bits, other types as double.
template <class Fn>
decltype(auto) visit_wide(DType t, const Fn& fn) {
  return is_integral(t) ? fn.template operator()<int64_t>() : fn.template operator()<double>();
}

template <class T>
inline constexpr DType kWide = std::is_same_v<T, double> ? DType::f64 : DType::i64;

template <class T>
constexpr T lowest_of() {
  return std::is_integral_v<T> ? std::numeric_limits<T>::lowest() : -std::numeric_limits<T>::infinity();
}

// How many windows a thread takes at a time.
int64_t grain_of(const Window& w) {
  const int64_t elements = w.kernel[0] * w.kernel[1] * w.kernel[2] + w.plane_in() / std::max<int64_t>(w.plane_out(), 1);
  return std::max<int64_t>(1, kPieceElements / elements);
}

// Element by element: on a device, for integers, or for windows of different sizes.
template <class T>
void largest_by_element(KernelCall& call, const Window& w, bool adaptive) {
  const auto* x = contiguous_as(call, call.tensor("self"), kWide<T>).template as<T>();
  Tensor values = workspace(call, kWide<T>, call.result(0).sizes()),
         places = workspace(call, DType::i64, call.result(0).sizes());
  for_each(call, values.elements(), grain_of(w),
           work::MaxPool<T>{w, adaptive, lowest_of<T>(), x, values.as<T>(), places.as<int64_t>()});
  copy(call, call.result(0), values);
  if (call.result_count() > 1) copy(call, call.result(1), places);
}

// The channels' axis if a kernel by channels applies, from floats to `to` of the same type; else -1.
int channels_of(KernelCall& call, const Tensor& like, const Tensor& from, const Tensor& to) {
  if (on_device(call) || !is_floating(from.dtype) || !is_runnable(from.dtype) || from.dtype != to.dtype) return -1;
  return inner_channels(like, plane_axes(call));
}

Status max_pool(KernelCall& call) {
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), call.result(0)));
  const Tensor& self = call.tensor("self");
  const int channels = channels_of(call, self, self, call.result(0));
  if (channels >= 0) return largest_by_channels(call, w, channels), ok_status();
  if (!on_device(call) && is_floating(self.dtype)) return largest_of_windows(call, w), ok_status();
  visit_wide(self.dtype, [&]<class T>() { largest_by_element<T>(call, w, false); });
  return ok_status();
}

work::ToPlaces to_places(KernelCall& call, const Window& w, int64_t size, const std::byte* from, const int64_t* places,
                         const Tensor& to) {
  return {w.plane_in(),   w.plane_out(),
          size,           reinterpret_cast<const unsigned char*>(from),
          places,         reinterpret_cast<unsigned char*>(to.data),
          report_of(call)};
}

void scatter_there(KernelCall& call, const Window& w, const Tensor& result, const Tensor& grad_output,
                   const int64_t* places) {
  const auto* grad = contiguous_as(call, grad_output, DType::f64).as<double>();
  Tensor sums = workspace(call, DType::f64, result.sizes());
  fill(call, sums, Scalar::integer(0));
  for_each(call, w.planes, 1, to_places(call, w, 0, reinterpret_cast<const std::byte*>(grad), places, sums));
  copy(call, result, sums);
}

// Adds each gradient at the position given by its index.
Status scatter_to_places(KernelCall& call, const Window& w, const Tensor& result, const Tensor& grad_output) {
  SG_TRY(expect_shape(call, "indices", call.tensor("indices"), grad_output.sizes()));
  const auto* places = contiguous_as(call, call.tensor("indices"), DType::i64).as<int64_t>();
  if (on_device(call)) return scatter_there(call, w, result, grad_output, places), ok_status();
  const Tensor grad = contiguous(call, grad_output);
  const ResultRows sums(call, result, -1);
  const RowReader<double> from(call, grad, w.plane_out());
  const RowWriter<double> to(call, sums.tensor(), w.plane_in());
  IndexCheck check;
  for_rows(call, w.planes, w.plane_in() + w.plane_out(), [&](int64_t plane, int thread) {
    const double* in = from.row(plane, thread);
    double* out = to.row(plane, thread);
    std::fill_n(out, w.plane_in(), 0.0);
    for (int64_t i = 0, place = plane * w.plane_out(); i < w.plane_out(); ++i, ++place) {
      const int64_t at = check.hold(places[place], w.plane_in(), place);
      if (at >= 0) out[at] += in[i];
    }
    to.done(plane, thread);
  });
  SG_TRY(check.status(call, places, w.plane_in()));
  sums.store(call);
  return ok_status();
}

// Each element iterates over the windows that contain it: sums are in the order of windows, and no two elements write
// to the same place.
Status max_pool_backward_there(KernelCall& call) {
  const Tensor& grad = call.tensor("grad_output");
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), grad));
  SG_TRY(expect_shape(call, "indices", call.tensor("indices"), grad.sizes()));
  const auto* places = contiguous_as(call, call.tensor("indices"), DType::i64).as<int64_t>();
  for_each(call, grad.elements(), 1, work::CheckRange{places, w.plane_in(), report_of(call)});
  Tensor sums = workspace(call, DType::f64, call.result().sizes());
  for_each(call, sums.elements(), 1,
           work::PoolBackward{w, false, false, 1, contiguous_as(call, grad, DType::f64).as<double>(), places,
                              sums.as<double>()});
  return copy(call, call.result(), sums), ok_status();
}

Status max_pool_backward(KernelCall& call) {
  if (on_device(call) && call.op().param_index("kernel_size") >= 0) return max_pool_backward_there(call);
  SG_ASSIGN(Window w, planes_of(call, call.tensor("self"), call.tensor("grad_output")));
  if (const int channels = channels_of(call, call.result(), call.tensor("grad_output"), call.result()); channels >= 0) {
    SG_TRY(expect_shape(call, "indices", call.tensor("indices"), call.tensor("grad_output").sizes()));
    return add_to_places_by_channels(call, w, channels);
  }
  return scatter_to_places(call, w, call.result(), call.tensor("grad_output"));
}

// Scatters values to their positions; if two have the same one, the last wins.
Status max_unpool(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(Window w, planes_of(call, call.result(), self));
  SG_TRY(expect_shape(call, "indices", call.tensor("indices"), self.sizes()));
  Tensor values = contiguous(call, self), to = workspace(call, self.dtype, call.result().sizes());
  fill(call, to, Scalar::integer(0));
  const auto* places = contiguous_as(call, call.tensor("indices"), DType::i64).as<int64_t>();
  if (on_device(call)) {
    for_each(call, w.planes, 1, to_places(call, w, dtype_bytes(self.dtype), values.data, places, to));
    return copy(call, call.result(), to), ok_status();
  }
  auto size = static_cast<size_t>(dtype_bytes(self.dtype));
  IndexCheck check;
  for_rows(call, w.planes, w.plane_out(), [&](int64_t plane, int) {
    for (int64_t from = plane * w.plane_out(); from < (plane + 1) * w.plane_out(); ++from) {
      int64_t at = check.hold(places[from], w.plane_in(), from);
      if (at < 0) continue;
      std::copy_n(values.data + static_cast<size_t>(from) * size, size,
                  to.data + static_cast<size_t>(plane * w.plane_in() + at) * size);
    }
  });
  SG_TRY(check.status(call, places, w.plane_in()));
  copy(call, call.result(), to);
  return ok_status();
}

// --- averages ---

Divisor divisor_of(KernelCall& call) {
  const bool given = call.op().param_index("divisor_override") >= 0 && call.has("divisor_override");
  return {given, call.flag("count_include_pad"), given ? call.integer("divisor_override") : 0};
}

Status avg_pool(KernelCall& call) {
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), call.result()));
  const Divisor by = divisor_of(call);
  const Tensor& self = call.tensor("self");
  const int channels = channels_of(call, self, self, call.result());
  if (channels >= 0) return average_by_channels(call, w, by, channels), ok_status();
  if (!on_device(call) && is_floating(self.dtype)) return average_windows(call, w, by), ok_status();
  visit_wide(self.dtype, [&]<class T>() {
    const auto* x = contiguous_as(call, self, kWide<T>).template as<T>();
    Tensor means = workspace(call, kWide<T>, call.result().sizes());
    for_each(call, means.elements(), grain_of(w), work::AvgPool<T>{w, by.given, by.padded, by.value, x, means.as<T>()});
    copy(call, call.result(), means);
  });
  return ok_status();
}

Status avg_pool_backward(KernelCall& call) {
  const Tensor& grad_output = call.tensor("grad_output");
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), grad_output));
  const Divisor by = divisor_of(call);
  const int channels = channels_of(call, call.result(), grad_output, call.result());
  if (channels >= 0) return spread_by_channels(call, w, by, channels), ok_status();
  if (!on_device(call) && is_floating(grad_output.dtype)) return spread_averages(call, w, by), ok_status();
  Tensor sums = workspace(call, DType::f64, call.result().sizes());
  for_each(call, sums.elements(), 1,
           work::PoolBackward{w, by.given, by.padded, by.value,
                              contiguous_as(call, grad_output, DType::f64).as<double>(), nullptr, sums.as<double>()});
  return copy(call, call.result(), sums), ok_status();
}

// --- adaptive: window i of n covers [floor(i size / n), ceil((i + 1) size / n)) ---

Span adaptive_span(const Window& w, size_t k, int64_t out) { return w.adaptive_span(static_cast<int>(k), out); }

Status adaptive_max_pool(KernelCall& call) {
  SG_ASSIGN(Window w, planes_of(call, call.tensor("self"), call.result(0)));
  if (w.plane_in() == 0 && w.plane_out() > 0) return call.fail("the planes have no elements");
  visit_wide(call.tensor("self").dtype, [&]<class T>() { largest_by_element<T>(call, w, true); });
  return ok_status();
}

std::vector<Taps> adaptive_taps(const Window& w, int axes) {
  std::vector<Taps> taps;
  for (size_t k = static_cast<size_t>(3 - axes); k < 3; ++k) {
    Taps t;
    t.in = w.in[k];
    for (int64_t i = 0; i < w.out[k]; ++i) {
      Span s = adaptive_span(w, k, i);
      for (int64_t at = s.from; at < s.end; ++at) t.add(at, 1 / static_cast<double>(s.padded));
      t.end_position();
    }
    taps.push_back(std::move(t));
  }
  return taps;
}

Status adaptive_avg_pool(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(Window w, planes_of(call, self, call.result()));
  if (w.plane_in() == 0 && w.plane_out() > 0) return call.fail("the planes have no elements");
  return resample(call, call.result(), self, adaptive_taps(w, plane_axes(call)));
}

Status adaptive_avg_pool_backward(KernelCall& call) {
  SG_ASSIGN(Window w, planes_of(call, call.result(), call.tensor("grad_output")));
  if (w.plane_in() == 0 && w.plane_out() > 0) return call.fail("the planes have no elements");
  std::vector<Taps> taps = adaptive_taps(w, plane_axes(call));
  for (Taps& t : taps) t = transposed(t);
  return resample(call, call.result(), call.tensor("grad_output"), taps);
}

constexpr KernelRow kRows[] = {
    {"aten.max_pool2d_with_indices.default", max_pool},
    {"aten.max_pool3d_with_indices.default", max_pool},
    {"aten.max_pool2d_with_indices_backward.default", max_pool_backward},
    {"aten.max_pool3d_with_indices_backward.default", max_pool_backward},
    {"aten.max_pool1d.default", max_pool},
    {"aten.max_pool2d.default", max_pool},
    {"aten.max_pool3d.default", max_pool},
    {"aten.avg_pool1d.default", avg_pool},
    {"aten.avg_pool2d.default", avg_pool},
    {"aten.avg_pool3d.default", avg_pool},
    {"aten.avg_pool2d_backward.default", avg_pool_backward},
    {"aten.avg_pool3d_backward.default", avg_pool_backward},
    {"aten.adaptive_avg_pool1d.default", adaptive_avg_pool},
    {"aten.adaptive_avg_pool2d.default", adaptive_avg_pool},
    {"aten.adaptive_avg_pool3d.default", adaptive_avg_pool},
    {"aten._adaptive_avg_pool2d.default", adaptive_avg_pool},
    {"aten._adaptive_avg_pool3d.default", adaptive_avg_pool},
    {"aten._adaptive_avg_pool2d_backward.default", adaptive_avg_pool_backward},
    {"aten._adaptive_avg_pool3d_backward.default", adaptive_avg_pool_backward},
    {"aten.adaptive_max_pool1d.default", adaptive_max_pool},
    {"aten.adaptive_max_pool2d.default", adaptive_max_pool},
    {"aten.adaptive_max_pool3d.default", adaptive_max_pool},
    {"aten.adaptive_max_pool2d_backward.default", max_pool_backward},
    {"aten.adaptive_max_pool3d_backward.default", max_pool_backward},
    {"aten.max_unpool2d.default", max_unpool},
    {"aten.max_unpool3d.default", max_unpool},
};

}  // namespace

std::span<const KernelRow> pool_kernels() { return kRows; }

}  // namespace sg::cpu
