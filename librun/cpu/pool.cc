// Pooling over windows of the last one to three axes, and its gradients. Planes of fewer axes have leading axes of size 1.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/resample.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

using Triple = std::array<int64_t, 3>;   // by depth, height and width

struct Window {
  Triple kernel{1, 1, 1}, stride{1, 1, 1}, padding{}, dilation{1, 1, 1};
  Triple in{1, 1, 1}, out{1, 1, 1};     // sizes of a plane
  int64_t planes = 1;

  int64_t plane_in() const { return in[0] * in[1] * in[2]; }
  int64_t plane_out() const { return out[0] * out[1] * out[2]; }
};

Status read_axes(KernelCall& call, std::string_view name, int axes, Triple* to) {
  SG_ASSIGN(std::vector<int64_t> list, numbers_of(call, name, axes, name == "padding" ? 0 : 1));
  std::copy(list.begin(), list.end(), to->begin() + (3 - axes));
  return ok_status();
}

// `input` is of the op before pooling, `pooled` after it.
Result<Window> planes_of(KernelCall& call, const Tensor& input, const Tensor& pooled) {
  int axes = plane_axes(call);
  if (input.rank < axes + 1 || pooled.rank != input.rank) return call.fail("pooling needs planes of channels");
  Window w;
  for (int i = 0; i < input.rank; ++i) {
    int k = i - (input.rank - axes);
    if (k >= 0) {
      w.in[static_cast<size_t>(3 - axes + k)] = input.dim(i), w.out[static_cast<size_t>(3 - axes + k)] = pooled.dim(i);
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
  SG_TRY(read_axes(call, "kernel_size", axes, &w.kernel));
  w.stride = w.kernel;
  bool strided = call.param("stride").kind == ParamValue::Kind::scalar || !call.integers("stride").empty();
  if (strided) SG_TRY(read_axes(call, "stride", axes, &w.stride));
  SG_TRY(read_axes(call, "padding", axes, &w.padding));
  SG_TRY(read_axes(call, "dilation", axes, &w.dilation));
  for (size_t k = 0; k < 3; ++k)
    if (w.kernel[k] <= 0 || w.stride[k] <= 0 || w.dilation[k] <= 0 || w.padding[k] < 0) return call.fail("a window needs sizes and steps of at least 1");
  return w;
}

// The positions of one window along one axis: from, from + step, ... below `end`, padding left out.
struct Span {
  int64_t from, end, step;
  int64_t padded;                       // positions with padding, as averages count them

  int64_t count() const { return from < end ? (end - from + step - 1) / step : 0; }
};

Span span_of(const Window& w, size_t k, int64_t out) {
  int64_t start = out * w.stride[k] - w.padding[k];
  int64_t end = std::min(start + (w.kernel[k] - 1) * w.dilation[k] + 1, w.in[k] + w.padding[k]);
  Span s{start, std::min(end, w.in[k]), w.dilation[k], end - start};
  if (start < 0) s.from += (-start + s.step - 1) / s.step * s.step;
  return s;
}

using Spans = std::array<Span, 3>;

// fn(plane, position in the pooled plane, spans) for every output, planes on all threads.
template <class SpanOf, class Fn>
void for_outputs(KernelCall& call, const Window& w, const SpanOf& span, const Fn& fn) {
  int64_t work = w.plane_out() * w.kernel[0] * w.kernel[1] * w.kernel[2];
  for_rows(call, w.planes, work, [&](int64_t plane, int) {
    int64_t at = 0;
    for (int64_t d = 0; d < w.out[0]; ++d)
      for (int64_t i = 0; i < w.out[1]; ++i)
        for (int64_t j = 0; j < w.out[2]; ++j) fn(plane, at++, Spans{span(w, 0, d), span(w, 1, i), span(w, 2, j)});
  });
}

// fn(place in the plane) for every position of a window.
template <class Fn>
void for_positions(const Window& w, const Spans& s, const Fn& fn) {
  for (int64_t d = s[0].from; d < s[0].end; d += s[0].step)
    for (int64_t r = s[1].from; r < s[1].end; r += s[1].step)
      for (int64_t c = s[2].from; c < s[2].end; c += s[2].step) fn((d * w.in[1] + r) * w.in[2] + c);
}

// Integers are compared and summed as 64 bits, all else as double.
template <class Fn>
decltype(auto) visit_wide(DType t, const Fn& fn) {
  return is_integral(t) ? fn.template operator()<int64_t>() : fn.template operator()<double>();
}

template <class T>
inline constexpr DType kWide = std::is_same_v<T, double> ? DType::f64 : DType::i64;

template <class T, class SpanOf>
void max_over(KernelCall& call, const Window& w, const SpanOf& span) {
  const auto* x = contiguous_as(call, call.tensor("self"), kWide<T>).template as<T>();
  Tensor values = call.scratch().tensor(kWide<T>, call.result(0).sizes()), places = call.scratch().tensor(DType::i64, call.result(0).sizes());
  for_outputs(call, w, span, [&](int64_t plane, int64_t out, const Spans& s) {
    const T* from = x + plane * w.plane_in();
    T top = std::is_same_v<T, double> ? static_cast<T>(-std::numeric_limits<double>::infinity()) : std::numeric_limits<T>::lowest();
    int64_t at = (s[0].from * w.in[1] + s[1].from) * w.in[2] + s[2].from;
    for_positions(w, s, [&](int64_t place) {
      if (from[place] > top || from[place] != from[place]) top = from[place], at = place;
    });
    values.as<T>()[plane * w.plane_out() + out] = top;
    places.as<int64_t>()[plane * w.plane_out() + out] = at;
  });
  copy(call, call.result(0), values);
  if (call.result_count() > 1) copy(call, call.result(1), places);
}

Status max_pool(KernelCall& call) {
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), call.result(0)));
  visit_wide(call.tensor("self").dtype, [&]<class T>() { max_over<T>(call, w, span_of); });
  return ok_status();
}

// Adds each gradient to the place that its index names.
Status scatter_to_places(KernelCall& call, const Window& w, const Tensor& result, const Tensor& grad_output) {
  SG_TRY(expect_shape(call, "indices", call.tensor("indices"), grad_output.sizes()));
  const auto* grad = contiguous_as(call, grad_output, DType::f64).as<double>();
  const auto* places = contiguous_as(call, call.tensor("indices"), DType::i64).as<int64_t>();
  Tensor sums = call.scratch().tensor(DType::f64, result.sizes());
  fill(call, sums, Scalar::integer(0));
  IndexCheck check;
  for_rows(call, w.planes, w.plane_out(), [&](int64_t plane, int) {
    for (int64_t from = plane * w.plane_out(); from < (plane + 1) * w.plane_out(); ++from) {
      int64_t at = check.hold(places[from], w.plane_in(), from);
      if (at >= 0) sums.as<double>()[plane * w.plane_in() + at] += grad[from];
    }
  });
  SG_TRY(check.status(call, places, w.plane_in()));
  copy(call, result, sums);
  return ok_status();
}

Status max_pool_backward(KernelCall& call) {
  SG_ASSIGN(Window w, planes_of(call, call.tensor("self"), call.tensor("grad_output")));
  return scatter_to_places(call, w, call.result(), call.tensor("grad_output"));
}

// The places hold values; of two for one place, the last wins.
Status max_unpool(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(Window w, planes_of(call, call.result(), self));
  SG_TRY(expect_shape(call, "indices", call.tensor("indices"), self.sizes()));
  Tensor values = contiguous(call, self), to = call.scratch().tensor(self.dtype, call.result().sizes());
  fill(call, to, Scalar::integer(0));
  const auto* places = contiguous_as(call, call.tensor("indices"), DType::i64).as<int64_t>();
  auto size = static_cast<size_t>(dtype_bytes(self.dtype));
  IndexCheck check;
  for_rows(call, w.planes, w.plane_out(), [&](int64_t plane, int) {
    for (int64_t from = plane * w.plane_out(); from < (plane + 1) * w.plane_out(); ++from) {
      int64_t at = check.hold(places[from], w.plane_in(), from);
      if (at < 0) continue;
      std::copy_n(values.data + static_cast<size_t>(from) * size, size, to.data + static_cast<size_t>(plane * w.plane_in() + at) * size);
    }
  });
  SG_TRY(check.status(call, places, w.plane_in()));
  copy(call, call.result(), to);
  return ok_status();
}

// --- averages ---

// What the sum over a window is divided by.
template <class T>
T divisor_of(KernelCall& call, const Spans& s) {
  if (call.op().param_index("divisor_override") >= 0 && call.has("divisor_override")) return static_cast<T>(call.integer("divisor_override"));
  bool padded = call.flag("count_include_pad");
  int64_t count = 1;
  for (const Span& span : s) count *= padded ? span.padded : span.end - span.from;
  return static_cast<T>(count);
}

bool is_empty(const Spans& s) {
  return std::any_of(s.begin(), s.end(), [](const Span& span) { return span.from >= span.end; });
}

Status avg_pool(KernelCall& call) {
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), call.result()));
  visit_wide(call.tensor("self").dtype, [&]<class T>() {
    const auto* x = contiguous_as(call, call.tensor("self"), kWide<T>).template as<T>();
    Tensor means = call.scratch().tensor(kWide<T>, call.result().sizes());
    for_outputs(call, w, span_of, [&](int64_t plane, int64_t out, const Spans& s) {
      T sum{}, divisor = divisor_of<T>(call, s);
      for_positions(w, s, [&](int64_t place) { sum += x[plane * w.plane_in() + place]; });
      means.as<T>()[plane * w.plane_out() + out] = is_empty(s) || divisor == 0 ? T{} : sum / divisor;
    });
    copy(call, call.result(), means);
  });
  return ok_status();
}

Status avg_pool_backward(KernelCall& call) {
  const Tensor& grad_output = call.tensor("grad_output");
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), grad_output));
  const auto* grad = contiguous_as(call, grad_output, DType::f64).as<double>();
  Tensor sums = call.scratch().tensor(DType::f64, call.result().sizes());
  fill(call, sums, Scalar::integer(0));
  for_outputs(call, w, span_of, [&](int64_t plane, int64_t out, const Spans& s) {
    if (is_empty(s)) return;
    double share = grad[plane * w.plane_out() + out] / divisor_of<double>(call, s);
    for_positions(w, s, [&](int64_t place) { sums.as<double>()[plane * w.plane_in() + place] += share; });
  });
  copy(call, call.result(), sums);
  return ok_status();
}

// --- adaptive: window i of n covers [floor(i size / n), ceil((i + 1) size / n)) ---

Span adaptive_span(const Window& w, size_t k, int64_t out) {
  int64_t n = w.out[k], size = w.in[k];
  int64_t from = out / n * size + out % n * size / n, end = 1 + ((out + 1) * size - 1) / n;
  return {from, end, 1, end - from};
}

Status adaptive_max_pool(KernelCall& call) {
  SG_ASSIGN(Window w, planes_of(call, call.tensor("self"), call.result(0)));
  if (w.plane_in() == 0 && w.plane_out() > 0) return call.fail("the planes have no elements");
  visit_wide(call.tensor("self").dtype, [&]<class T>() { max_over<T>(call, w, adaptive_span); });
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
