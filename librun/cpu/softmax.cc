// Softmax and log-softmax along one axis, and their gradients. Sums in double, rounded once at the end.
#include <algorithm>
#include <cmath>
#include <limits>

#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/lanes.h"
#include "librun/cpu/log_sum.h"
#include "librun/cpu/side_lines.h"
#include "librun/work/exp_float.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

enum class Form : uint8_t { plain, log, safe };

// to = exp(x - top); returns its sum.
template <class C>
SG_CLONES double exp_shifted(const C* x, C top, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = math::exp_float(x[i] - top);
  return sum_lanes(n, [=](int64_t i) { return static_cast<double>(to[i]); });
}

template <class C>
SG_CLONES double sum_of_exp(const C* x, C top, int64_t n) {
  return sum_lanes(n, [=](int64_t i) { return static_cast<double>(math::exp_float(x[i] - top)); });
}

template <class C>
SG_CLONES void divide(C* x, C by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] /= by;
}

template <class C>
SG_CLONES void subtract(const C* x, double shift, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(static_cast<double>(x[i]) - shift);
}

template <class C>
SG_CLONES void plain_gradient(const C* grad, const C* output, C dot, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = (grad[i] - dot) * output[i];
}

template <class C>
SG_CLONES void log_gradient(const C* grad, const C* output, C sum, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = grad[i] - math::exp_float(output[i]) * sum;
}

template <class C>
void softmax_row(Form form, const C* x, C* to, int64_t n) {
  if (form == Form::log) return subtract(x, log_sum_of_exp(x, n), to, n);
  C top = row_max(x, n);
  if (form == Form::safe && top == -std::numeric_limits<C>::infinity()) {  // all masked out: zeros, not NaN
    std::fill_n(to, n, C{0});
    return;
  }
  divide(to, static_cast<C>(exp_shifted(x, top, to, n)), n);
}

// The same for kSideLines lines side by side.
template <class C>
SG_CLONES void softmax_side(Form form, C* x, int64_t n) {
  C top[kSideLines], whole[kSideLines];
  double sums[kSideLines];
  max_side(x, n, top);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < kSideLines; ++l) x[i * kSideLines + l] = math::exp_float(x[i * kSideLines + l] - top[l]);
  sum_side(
      n, [=](int64_t i, int64_t l) { return static_cast<double>(x[i * kSideLines + l]); }, sums);
  for (int64_t l = 0; l < kSideLines; ++l) whole[l] = static_cast<C>(sums[l]);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < kSideLines; ++l) x[i * kSideLines + l] /= whole[l];
  for (int64_t l = 0; form == Form::safe && l < kSideLines; ++l)  // all masked out: zeros, not NaN
    for (int64_t i = 0; top[l] == -std::numeric_limits<C>::infinity() && i < n; ++i) x[i * kSideLines + l] = 0;
}

template <class C>
SG_CLONES void sums_of_exp(const C* x, int64_t n, C* top, double* sums) {
  max_side(x, n, top);
  sum_side(
      n, [=](int64_t i, int64_t l) { return static_cast<double>(math::exp_float(x[i * kSideLines + l] - top[l])); },
      sums);
}

template <class C>
void log_sums_side(const C* x, int64_t n, C* top, double* logs) {
  sums_of_exp(x, n, top, logs);
  for (int64_t l = 0; l < kSideLines; ++l) logs[l] = static_cast<double>(top[l]) + std::log(logs[l]);
}

template <class C>
SG_CLONES void subtract_side(C* x, int64_t n, const double* shift) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < kSideLines; ++l)
      x[i * kSideLines + l] = static_cast<C>(static_cast<double>(x[i * kSideLines + l]) - shift[l]);
}

template <class C>
void log_softmax_side(C* x, int64_t n) {
  C top[kSideLines];
  double logs[kSideLines];
  log_sums_side(x, n, top, logs);
  subtract_side(x, n, logs);
}

template <class C>
void softmax_lines(KernelCall& call, Form form, const LineTiles& tiles, const Tensor& self, const Tensor& result) {
  SideLines<C> x(call, tiles);
  tiles.each(call, [&](int64_t tile, int thread) {
    C* lines = x.read(self, tile, thread);
    if (form == Form::log) log_softmax_side(lines, tiles.length);
    else softmax_side(form, lines, tiles.length);
    x.write(result, tile, thread);
  });
}

template <class C>
void softmax_rows(KernelCall& call, Form form) {
  Tensor self = call.tensor("self"), result = call.result();
  int64_t axis = call.integer("dim");
  if (axis_last(result, axis).is_contiguous())  // channels that are innermost
    self = axis_last(self, axis), result = axis_last(result, axis), axis = -1;
  // A dtype argument converts first.
  bool converts = call.op().param_index("dtype") >= 0 && call.has("dtype");
  const auto tiles = LineTiles::along(result, axis);
  if (tiles && !converts && is_floating(self.dtype))
    return softmax_lines<C>(call, form, *tiles, contiguous(call, self), result);
  Rows in = rows_of(call, self, axis, converts ? call.stored("dtype", self.dtype) : self.dtype);
  if (!is_floating(in.tensor.dtype)) in = rows_of(call, self, axis, kDTypeOf<C>);
  ResultRows out(call, result, axis);
  RowReader<C> x(call, in.tensor, in.length);
  RowWriter<C> y(call, out.tensor(), in.length);
  for_rows(call, in.count, in.length, [&](int64_t row, int thread) {
    softmax_row(form, x.row(row, thread), y.row(row, thread), in.length);
    y.done(row, thread);
  });
  out.store(call);
}

Status run(KernelCall& call, Form form) {
  DType widest = call.tensor("self").dtype == DType::f64 ? DType::f64 : call.result().dtype;
  visit_compute(widest, [&]<class C>() { softmax_rows<C>(call, form); });
  return ok_status();
}

Status softmax(KernelCall& call) { return run(call, Form::plain); }
Status log_softmax(KernelCall& call) { return run(call, Form::log); }
Status safe_softmax(KernelCall& call) { return run(call, Form::safe); }

template <class C>
void gradient_row(Form form, const C* grad, const C* output, C* to, int64_t n) {
  if (form == Form::log) log_gradient(grad, output, static_cast<C>(row_sum(grad, n)), to, n);
  else plain_gradient(grad, output, static_cast<C>(row_dot(grad, output, n)), to, n);
}

// The same for kSideLines lines side by side; gradients are replaced by those of the inputs.
template <class C>
SG_CLONES void gradient_side(C* grad, const C* output, int64_t n) {
  double sums[kSideLines];
  C dot[kSideLines];
  sum_side(
      n,
      [=](int64_t i, int64_t l) {
        return static_cast<double>(grad[i * kSideLines + l]) * static_cast<double>(output[i * kSideLines + l]);
      },
      sums);
  for (int64_t l = 0; l < kSideLines; ++l) dot[l] = static_cast<C>(sums[l]);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < kSideLines; ++l)
      grad[i * kSideLines + l] = (grad[i * kSideLines + l] - dot[l]) * output[i * kSideLines + l];
}

template <class C>
SG_CLONES void log_gradient_side(C* grad, const C* output, int64_t n) {
  double sums[kSideLines];
  C sum[kSideLines];
  sum_side(
      n, [=](int64_t i, int64_t l) { return static_cast<double>(grad[i * kSideLines + l]); }, sums);
  for (int64_t l = 0; l < kSideLines; ++l) sum[l] = static_cast<C>(sums[l]);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < kSideLines; ++l)
      grad[i * kSideLines + l] -= math::exp_float(output[i * kSideLines + l]) * sum[l];
}

template <class C>
void backward_lines(KernelCall& call, Form form, const LineTiles& tiles, const Tensor& of_result, const Tensor& result,
                    const Tensor& to) {
  SideLines<C> g(call, tiles), y(call, tiles);
  tiles.each(call, [&](int64_t tile, int thread) {
    C* grad = g.read(of_result, tile, thread);
    const C* output = y.read(result, tile, thread);
    if (form == Form::log) log_gradient_side(grad, output, tiles.length);
    else gradient_side(grad, output, tiles.length);
    g.write(to, tile, thread);
  });
}

template <class C>
void backward_rows(KernelCall& call, Form form) {
  Tensor of_result = call.tensor("grad_output"), result = call.tensor("output"), input = call.result();
  int64_t axis = call.integer("dim");
  if (axis_last(input, axis).is_contiguous()) {
    for (Tensor* t : {&of_result, &result, &input}) *t = axis_last(*t, axis);
    axis = -1;
  }
  if (const auto tiles = LineTiles::along(input, axis))
    return backward_lines<C>(call, form, *tiles, contiguous(call, of_result), contiguous(call, result), input);
  Rows grad = rows_of(call, of_result, axis), output = rows_of(call, result, axis);
  ResultRows out(call, input, axis);
  RowReader<C> g(call, grad.tensor, grad.length), y(call, output.tensor, grad.length);
  RowWriter<C> to(call, out.tensor(), grad.length);
  for_rows(call, grad.count, grad.length, [&](int64_t row, int thread) {
    gradient_row(form, g.row(row, thread), y.row(row, thread), to.row(row, thread), grad.length);
    to.done(row, thread);
  });
  out.store(call);
}

Status run_backward(KernelCall& call, Form form) {
  visit_compute(call.tensor("output").dtype, [&]<class C>() { backward_rows<C>(call, form); });
  return ok_status();
}

Status softmax_backward(KernelCall& call) { return run_backward(call, Form::plain); }
Status log_softmax_backward(KernelCall& call) { return run_backward(call, Form::log); }

constexpr KernelRow kRows[] = {
    {"aten._softmax.default", softmax},           {"aten._softmax_backward_data.default", softmax_backward},
    {"aten._log_softmax.default", log_softmax},   {"aten._log_softmax_backward_data.default", log_softmax_backward},
    {"aten._safe_softmax.default", safe_softmax}, {"aten.softmax.int", softmax},
    {"aten.log_softmax.int", log_softmax},
};

}  // namespace

double log_sum_of_exp(const float* x, int64_t n) {
  const float top = row_max(x, n);
  return static_cast<double>(top) + std::log(sum_of_exp(x, top, n));
}
double log_sum_of_exp(const double* x, int64_t n) {
  const double top = row_max(x, n);
  return top + std::log(sum_of_exp(x, top, n));
}
void log_sums_of_exp(const float* x, int64_t n, float* top, double* logs) { log_sums_side(x, n, top, logs); }
void log_sums_of_exp(const double* x, int64_t n, double* top, double* logs) { log_sums_side(x, n, top, logs); }

std::span<const KernelRow> softmax_kernels() { return kRows; }

}  // namespace sg::cpu
