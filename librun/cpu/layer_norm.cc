// Layer norm and RMS norm over the trailing axes, and their gradients. Statistics and the gradients of weight and bias
// are summed in double; rows of the latter in blocks of fixed size.
#include <cmath>

#include "librun/cpu/kernels.h"
#include "librun/cpu/lanes.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

constexpr int64_t kRowsPerBlock = 32;  // whose parameter gradients are summed in one go

// to = (x - mean) * rstd * weight + bias; weight and bias may be null.
template <class C>
SG_CLONES void normalize(const C* x, double mean, double rstd, const C* weight, const C* bias, C* to, int64_t n) {
  if (weight && bias) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = static_cast<C>((static_cast<double>(x[i]) - mean) * rstd * static_cast<double>(weight[i]) +
                             static_cast<double>(bias[i]));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    double value = (static_cast<double>(x[i]) - mean) * rstd;
    if (weight) value *= static_cast<double>(weight[i]);
    if (bias) value += static_cast<double>(bias[i]);
    to[i] = static_cast<C>(value);
  }
}

// The two sums that the gradient of a row needs: of grad * weight, and of grad * weight * (x - mean).
template <class C>
SG_CLONES TwoSums gradient_sums(const C* grad, const C* x, double mean, const C* weight, int64_t n) {
  if (!weight) {
    return sum_lanes(
        n, [=](int64_t i) { return static_cast<double>(grad[i]); },
        [=](int64_t i) { return static_cast<double>(grad[i]) * (static_cast<double>(x[i]) - mean); });
  }
  return sum_lanes(
      n, [=](int64_t i) { return static_cast<double>(grad[i]) * static_cast<double>(weight[i]); },
      [=](int64_t i) {
        return static_cast<double>(grad[i]) * static_cast<double>(weight[i]) * (static_cast<double>(x[i]) - mean);
      });
}

// to = rstd * (grad * weight - shift - (x - mean) * slope)
template <class C>
SG_CLONES void input_gradient(const C* grad, const C* x, const C* weight, double mean, double rstd, double shift,
                              double slope, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double weighted = static_cast<double>(grad[i]) * (weight ? static_cast<double>(weight[i]) : 1.0);
    to[i] = static_cast<C>(rstd * (weighted - shift - (static_cast<double>(x[i]) - mean) * slope));
  }
}

template <class C>
SG_CLONES void add_parameter_gradients(const C* grad, const C* x, double mean, double rstd, double* weight,
                                       double* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double g = static_cast<double>(grad[i]);
    weight[i] += g * ((static_cast<double>(x[i]) - mean) * rstd);
    bias[i] += g;
  }
}

SG_CLONES void add_row(double* to, const double* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

// What the op normalises over, and in which way.
struct Norm {
  int64_t length;  // elements that are normalised together
  bool centered;   // layer norm, not RMS norm
};

template <class C>
const C* parameter(KernelCall& call, std::string_view name) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return nullptr;
  return contiguous_as(call, call.tensor(name), kDTypeOf<C>).template as<C>();
}

// A tensor of statistics as C, one a row; null where the op has no such result.
template <class C>
C* statistics_result(KernelCall& call, size_t i, Tensor* held) {
  if (i >= call.result_count() || call.result(i).is_none()) return nullptr;
  *held = call.scratch().tensor(kDTypeOf<C>, call.result(i).sizes());
  return held->template as<C>();
}

// RMS norm leaves it to the type that is computed in; a graph run in double records f32 or less as a rule.
double epsilon(KernelCall& call, DType dtype) {
  if (call.has("eps")) return call.number("eps");
  bool wide = dtype == DType::f64 && call.numerics() != Numerics::f64;
  return wide ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
}

template <class C>
void forward(KernelCall& call, Norm norm) {
  Tensor input = contiguous(call, call.tensor("input"));
  Rows rows = rows_of_length(input, norm.length);
  const C* weight = parameter<C>(call, "weight");
  const C* bias = parameter<C>(call, "bias");
  double eps = epsilon(call, input.dtype), count = static_cast<double>(norm.length);
  ResultRows out(call, call.result(0), -1);
  Tensor mean_tensor, rstd_tensor;
  C* means = norm.centered ? statistics_result<C>(call, 1, &mean_tensor) : nullptr;
  C* rstds = statistics_result<C>(call, norm.centered ? 2 : 1, &rstd_tensor);
  RowReader<C> x(call, input, norm.length);
  RowWriter<C> y(call, out.tensor(), norm.length);
  for_rows(call, rows.count, norm.length, [&](int64_t row, int thread) {
    const C* from = x.row(row, thread);
    double mean = norm.centered ? row_sum(from, norm.length) / count : 0.0;
    double rstd = 1 / std::sqrt(row_square_distance(from, mean, norm.length) / count + eps);
    normalize(from, mean, rstd, weight, bias, y.row(row, thread), norm.length);
    y.done(row, thread);
    if (means) means[row] = static_cast<C>(mean);
    if (rstds) rstds[row] = static_cast<C>(rstd);
  });
  out.store(call);
  if (means) copy(call, call.result(1), mean_tensor);
  if (rstds) copy(call, call.result(norm.centered ? 2 : 1), rstd_tensor);
}

Status run_forward(KernelCall& call, bool centered) {
  Norm norm{normalized_length(call), centered};
  visit_compute(call.tensor("input").dtype, [&]<class C>() { forward<C>(call, norm); });
  return ok_status();
}

Status layer_norm(KernelCall& call) { return run_forward(call, true); }
Status rms_norm(KernelCall& call) { return run_forward(call, false); }

template <class C>
struct Gradients {
  KernelCall& call;
  Norm norm;
  Tensor grad, input;
  const C* weight;
  const C* means;  // null: not centered
  const C* rstds;

  double mean(int64_t row) const { return means ? static_cast<double>(means[row]) : 0.0; }

  // Results 0 (input), 1 (weight) and 2 (bias), where wanted. A block of rows at a time, of which the cache holds what
  // the gradients of the parameters are made of, too: sums in double, of a block first. If there are too few blocks for
  // the threads, rows are handed out one by one for the input's gradient.
  void run(bool of_input, bool of_parameters) const {
    const int64_t n = norm.length, rows = rows_of_length(input, n).count;
    const int64_t blocks = std::max<int64_t>(1, (rows + kRowsPerBlock - 1) / kRowsPerBlock);
    auto* sums = call.scratch().take<double>(of_parameters ? blocks * 2 * n : 1);
    Tensor none = call.scratch().tensor(kDTypeOf<C>, {});
    ResultRows out(call, of_input ? call.result(0) : none, -1);
    RowReader<C> g(call, grad, n), x(call, input, n);
    RowWriter<C> to(call, out.tensor(), n);
    auto input_row = [&](int64_t row, int thread, const C* from, const C* at) {
      write_row(from, at, mean(row), static_cast<double>(rstds[row]), to.row(row, thread));
      to.done(row, thread);
    };
    const bool together = of_parameters && (call.team().size() == 1 || blocks >= 4 * call.team().size());
    if (of_input && !together)
      for_rows(call, rows, n,
               [&](int64_t row, int thread) { input_row(row, thread, g.row(row, thread), x.row(row, thread)); });
    call.team().parallel_for_indexed(of_parameters ? blocks : 0, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        double* sum = sums + block * 2 * n;
        std::fill_n(sum, 2 * n, 0.0);
        for (int64_t row = block * kRowsPerBlock; row < std::min(rows, (block + 1) * kRowsPerBlock); ++row) {
          const C *from = g.row(row, thread), *at = x.row(row, thread);
          add_parameter_gradients(from, at, mean(row), static_cast<double>(rstds[row]), sum, sum + n, n);
          if (of_input && together) input_row(row, thread, from, at);
        }
      }
    });
    if (of_input) out.store(call);
    if (of_parameters) store_parameters(sums, blocks);
  }

 private:
  void write_row(const C* from, const C* at, double center, double rstd, C* to) const {
    const double count = static_cast<double>(norm.length);
    TwoSums sums = gradient_sums(from, at, center, weight, norm.length);
    double shift = norm.centered ? sums.first / count : 0.0, slope = sums.second * rstd * rstd / count;
    input_gradient(from, at, weight, center, rstd, shift, slope, to, norm.length);
  }

  void store_parameters(double* sums, int64_t blocks) const {
    const int64_t n = norm.length;
    for (int64_t step = 1; step < blocks; step *= 2)
      for (int64_t block = 0; block + step < blocks; block += 2 * step)
        add_row(sums + block * 2 * n, sums + (block + step) * 2 * n, 2 * n);
    for (size_t i = 1; i < call.result_count(); ++i) {
      if (call.result(i).is_none()) continue;
      copy(call, call.result(i),
           make_tensor(reinterpret_cast<std::byte*>(sums + (i == 2 ? n : 0)), DType::f64, call.result(i).sizes()));
    }
  }
};

template <class C>
void backward(KernelCall& call, Norm norm) {
  Gradients<C> gradients{call,
                         norm,
                         contiguous(call, call.tensor("grad_out")),
                         contiguous(call, call.tensor("input")),
                         parameter<C>(call, "weight"),
                         parameter<C>(call, "mean"),
                         parameter<C>(call, "rstd")};
  bool parameters = false;
  for (size_t i = 1; i < call.result_count(); ++i) parameters |= !call.result(i).is_none();
  gradients.run(!call.result(0).is_none(), parameters);
}

Status run_backward(KernelCall& call, bool centered) {
  Norm norm{normalized_length(call), centered};
  visit_compute(call.tensor("input").dtype, [&]<class C>() { backward<C>(call, norm); });
  return ok_status();
}

Status layer_norm_backward(KernelCall& call) { return run_backward(call, true); }
Status rms_norm_backward(KernelCall& call) { return run_backward(call, false); }

constexpr KernelRow kRows[] = {
    {"aten.native_layer_norm.default", layer_norm}, {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten.layer_norm.default", layer_norm},        {"aten.rms_norm.default", rms_norm},
    {"aten._fused_rms_norm.default", rms_norm},     {"aten._fused_rms_norm_backward.default", rms_norm_backward},
};

}  // namespace

std::span<const KernelRow> layer_norm_kernels() { return kRows; }

}  // namespace sg::cpu
