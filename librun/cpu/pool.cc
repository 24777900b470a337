// Pooling over windows of the last two axes, and its gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

struct Pair {
  int64_t rows, columns;
};

Pair pair_of(KernelCall& call, std::string_view name, Pair otherwise) {
  std::span<const int64_t> list = call.integers(name);
  if (call.param(name).kind == ParamValue::Kind::scalar) return {call.integer(name), call.integer(name)};
  if (list.empty()) return otherwise;
  return {list[0], list[list.size() > 1 ? 1 : 0]};
}

struct Window {
  Pair kernel, stride, padding, dilation;
  Pair in, out;                         // sizes of a plane
  int64_t planes;
};

Result<Window> window_of(KernelCall& call, const Tensor& input, const Tensor& pooled) {
  Window w;
  w.kernel = pair_of(call, "kernel_size", {1, 1});
  w.stride = pair_of(call, "stride", w.kernel);
  w.padding = pair_of(call, "padding", {0, 0});
  w.dilation = call.op().param_index("dilation") >= 0 ? pair_of(call, "dilation", {1, 1}) : Pair{1, 1};
  if (input.rank < 3 || pooled.rank < 3) return call.fail("pooling needs planes of channels");
  for (Pair p : {w.kernel, w.stride, w.dilation})
    if (p.rows <= 0 || p.columns <= 0) return call.fail("a window needs sizes and steps of at least 1");
  w.in = {input.dim(-2), input.dim(-1)};
  w.out = {pooled.dim(-2), pooled.dim(-1)};
  int64_t plane = w.in.rows * w.in.columns;
  w.planes = plane == 0 ? 0 : input.elements() / plane;
  return w;
}

// The positions of one window along one axis: from, from + step, ... below `end`, padding left out.
struct Span {
  int64_t from, end, step;
  int64_t padded;                       // positions with padding, as avg_pool2d counts them
};

Span span_of(int64_t out, int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  int64_t start = out * stride - padding, end = std::min(start + (kernel - 1) * dilation + 1, size + padding);
  Span s{start, std::min(end, size), dilation, end - start};
  if (start < 0) s.from += (-start + dilation - 1) / dilation * dilation;
  return s;
}

Span rows_of_window(const Window& w, int64_t i) { return span_of(i, w.in.rows, w.kernel.rows, w.stride.rows, w.padding.rows, w.dilation.rows); }
Span columns_of_window(const Window& w, int64_t j) {
  return span_of(j, w.in.columns, w.kernel.columns, w.stride.columns, w.padding.columns, w.dilation.columns);
}

int64_t plane_in(const Window& w) { return w.in.rows * w.in.columns; }
int64_t plane_out(const Window& w) { return w.out.rows * w.out.columns; }

// fn(plane, i, j) for every output, planes on all threads.
template <class Fn>
void for_outputs(KernelCall& call, const Window& w, const Fn& fn) {
  for_rows(call, w.planes, plane_out(w) * w.kernel.rows * w.kernel.columns, [&](int64_t plane, int) {
    for (int64_t i = 0; i < w.out.rows; ++i)
      for (int64_t j = 0; j < w.out.columns; ++j) fn(plane, i, j);
  });
}

Status max_pool(KernelCall& call) {
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), call.result(0)));
  const auto* x = contiguous_as(call, call.tensor("self"), DType::f64).as<double>();
  Tensor values = call.scratch().tensor(DType::f64, call.result(0).sizes()), places = call.scratch().tensor(DType::i64, call.result(0).sizes());
  for_outputs(call, w, [&](int64_t plane, int64_t i, int64_t j) {
    Span rows = rows_of_window(w, i), columns = columns_of_window(w, j);
    const double* from = x + plane * plane_in(w);
    double top = -std::numeric_limits<double>::infinity();
    int64_t at = rows.from * w.in.columns + columns.from;
    for (int64_t r = rows.from; r < rows.end; r += rows.step) {
      for (int64_t c = columns.from; c < columns.end; c += columns.step) {
        double value = from[r * w.in.columns + c];
        if (value > top || value != value) top = value, at = r * w.in.columns + c;
      }
    }
    int64_t to = plane * plane_out(w) + i * w.out.columns + j;
    values.as<double>()[to] = top;
    places.as<int64_t>()[to] = at;
  });
  copy(call, call.result(0), values);
  copy(call, call.result(1), places);
  return ok_status();
}

Status max_pool_backward(KernelCall& call) {
  const Tensor& grad_output = call.tensor("grad_output");
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), grad_output));
  const auto* grad = contiguous_as(call, grad_output, DType::f64).as<double>();
  const auto* places = contiguous_as(call, call.tensor("indices"), DType::i64).as<int64_t>();
  Tensor sums = call.scratch().tensor(DType::f64, call.result().sizes());
  fill(call, sums, Scalar::integer(0));
  IndexCheck check;
  for_outputs(call, w, [&](int64_t plane, int64_t i, int64_t j) {
    int64_t from = plane * plane_out(w) + i * w.out.columns + j, at = check.hold(places[from], plane_in(w), from);
    if (at >= 0) sums.as<double>()[plane * plane_in(w) + at] += grad[from];
  });
  SG_TRY(check.status(call, places, plane_in(w)));
  copy(call, call.result(), sums);
  return ok_status();
}

// What the sum over a window is divided by.
double divisor_of(KernelCall& call, const Span& rows, const Span& columns) {
  if (call.has("divisor_override")) return call.number("divisor_override");
  bool padded = call.flag("count_include_pad");
  return static_cast<double>(padded ? rows.padded * columns.padded : (rows.end - rows.from) * (columns.end - columns.from));
}

Status avg_pool(KernelCall& call) {
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), call.result()));
  const auto* x = contiguous_as(call, call.tensor("self"), DType::f64).as<double>();
  Tensor means = call.scratch().tensor(DType::f64, call.result().sizes());
  for_outputs(call, w, [&](int64_t plane, int64_t i, int64_t j) {
    Span rows = rows_of_window(w, i), columns = columns_of_window(w, j);
    double sum = 0;
    for (int64_t r = rows.from; r < rows.end; ++r)
      for (int64_t c = columns.from; c < columns.end; ++c) sum += x[plane * plane_in(w) + r * w.in.columns + c];
    bool empty = rows.from >= rows.end || columns.from >= columns.end;
    means.as<double>()[plane * plane_out(w) + i * w.out.columns + j] = empty ? 0 : sum / divisor_of(call, rows, columns);
  });
  copy(call, call.result(), means);
  return ok_status();
}

Status avg_pool_backward(KernelCall& call) {
  const Tensor& grad_output = call.tensor("grad_output");
  SG_ASSIGN(Window w, window_of(call, call.tensor("self"), grad_output));
  const auto* grad = contiguous_as(call, grad_output, DType::f64).as<double>();
  Tensor sums = call.scratch().tensor(DType::f64, call.result().sizes());
  fill(call, sums, Scalar::integer(0));
  for_outputs(call, w, [&](int64_t plane, int64_t i, int64_t j) {
    Span rows = rows_of_window(w, i), columns = columns_of_window(w, j);
    double share = grad[plane * plane_out(w) + i * w.out.columns + j] / divisor_of(call, rows, columns);
    for (int64_t r = rows.from; r < rows.end; ++r)
      for (int64_t c = columns.from; c < columns.end; ++c) sums.as<double>()[plane * plane_in(w) + r * w.in.columns + c] += share;
  });
  copy(call, call.result(), sums);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.max_pool2d_with_indices.default", max_pool},
    {"aten.max_pool2d_with_indices_backward.default", max_pool_backward},
    {"aten.avg_pool2d.default", avg_pool},
    {"aten.avg_pool2d_backward.default", avg_pool_backward},
};

}  // namespace

std::span<const KernelRow> pool_kernels() { return kRows; }

}  // namespace sg::cpu
