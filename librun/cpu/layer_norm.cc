// Layer norm and RMS norm over the trailing axes, and their gradients. Statistics and the gradients of weight and bias
// are summed in double; rows of the latter in blocks of fixed size.
#include <cmath>

#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/lanes.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

constexpr int64_t kRowsPerBlock = 32;  // rows whose parameter gradients are summed together

constexpr int64_t kTogether = 4;  // rows that share loads of the parameters, and of their gradients

struct RowStatistics {
  double mean, rstd;
};

// to = (x - mean) * rstd * weight + bias for kRows rows of n; weight and bias may be null.
template <int64_t kRows, class C>
SG_INLINE void normalize_rows(const C* x, const RowStatistics* s, const C* weight, const C* bias, C* to, int64_t n) {
  if (weight && bias) {
#pragma GCC ivdep  // `to` may lie where x does
    for (int64_t i = 0; i < n; ++i) {
      const auto w = static_cast<double>(weight[i]), b = static_cast<double>(bias[i]);
      for (int64_t r = 0; r < kRows; ++r)
        to[r * n + i] = static_cast<C>((static_cast<double>(x[r * n + i]) - s[r].mean) * s[r].rstd * w + b);
    }
    return;
  }
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t i = 0; i < n; ++i) {
      double value = (static_cast<double>(x[r * n + i]) - s[r].mean) * s[r].rstd;
      if (weight) value *= static_cast<double>(weight[i]);
      if (bias) value += static_cast<double>(bias[i]);
      to[r * n + i] = static_cast<C>(value);
    }
}

template <class C>
SG_CLONES void normalize(const C* x, const RowStatistics* s, int64_t rows, const C* weight, const C* bias, C* to,
                         int64_t n) {
  if (rows == kTogether) return normalize_rows<kTogether>(x, s, weight, bias, to, n);
  for (int64_t r = 0; r < rows; ++r) normalize_rows<1>(x + r * n, s + r, weight, bias, to + r * n, n);
}

// The two sums for the gradient of a row: of grad * weight, and of grad * weight * (x - mean).
template <class C>
SG_CLONES TwoSums gradient_sums(const C* grad, const C* x, double mean, const C* weight, int64_t n) {
  if (!weight) {
    return sum_two_lanes(n, [=](int64_t i, double* first, double* second) {
      const auto g = static_cast<double>(grad[i]);
      *first += g, *second += g * (static_cast<double>(x[i]) - mean);
    });
  }
  return sum_two_lanes(n, [=](int64_t i, double* first, double* second) {
    const double weighted = static_cast<double>(grad[i]) * static_cast<double>(weight[i]);
    *first += weighted, *second += weighted * (static_cast<double>(x[i]) - mean);
  });
}

// Per-row coefficients of the gradient: to = rstd * (grad * weight - shift - (x - mean) * slope)
struct RowGradient {
  double mean, rstd, shift, slope;
};

template <class C>
SG_CLONES void input_gradient(const C* grad, const C* x, const C* weight, const RowGradient& row, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double weighted = static_cast<double>(grad[i]) * (weight ? static_cast<double>(weight[i]) : 1.0);
    to[i] = static_cast<C>(row.rstd * (weighted - row.shift - (static_cast<double>(x[i]) - row.mean) * row.slope));
  }
}

// Rows of n: what their gradients are made of, and where those of the input go.
template <class C>
struct GradientRows {
  const C *grad, *x;
  const RowGradient* rows;
  C* to;
  int64_t n;
  GradientRows from(int64_t r) const { return {grad + r * n, x + r * n, rows + r, to + r * n, n}; }
};

// Accumulates the gradients of the parameters and, if kInput, computes those of the input; for kRows rows.
template <int64_t kRows, bool kInput, class C>
SG_INLINE void add_gradients(const GradientRows<C>& of, const C* weight, double* of_weight, double* of_bias) {
  const auto [grad, x, rows, to, n] = of;
#pragma GCC ivdep  // `to` may lie where grad or x does
  for (int64_t i = 0; i < n; ++i) {
    const double w = kInput && weight ? static_cast<double>(weight[i]) : 1.0;
    double slope = of_weight[i], sum = of_bias[i];
    for (int64_t r = 0; r < kRows; ++r) {
      const RowGradient& row = rows[r];
      const auto g = static_cast<double>(grad[r * n + i]);
      const double distance = static_cast<double>(x[r * n + i]) - row.mean;
      slope += g * (distance * row.rstd);
      sum += g;
      if (kInput) to[r * n + i] = static_cast<C>(row.rstd * (g * w - row.shift - distance * row.slope));
    }
    of_weight[i] = slope, of_bias[i] = sum;
  }
}

template <bool kInput, class C>
SG_CLONES void add_gradients(int64_t count, GradientRows<C> of, const C* weight, double* of_weight, double* of_bias) {
  if (count == kTogether) return add_gradients<kTogether, kInput>(of, weight, of_weight, of_bias);
  for (int64_t r = 0; r < count; ++r) add_gradients<1, kInput>(of.from(r), weight, of_weight, of_bias);
}

SG_CLONES void add_row(double* to, const double* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

// What the op normalizes over, and how.
struct Norm {
  int64_t length;  // elements that are normalized together
  bool centered;   // layer norm, not RMS norm
};

template <class C>
const C* parameter(KernelCall& call, std::string_view name) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return nullptr;
  return contiguous_as(call, call.tensor(name), kDTypeOf<C>).template as<C>();
}

// A tensor of statistics as C, one per row; null if the op has no such result.
template <class C>
C* statistics_result(KernelCall& call, size_t i, Tensor* held) {
  if (i >= call.result_count() || call.result(i).is_none()) return nullptr;
  *held = call.scratch().tensor(kDTypeOf<C>, call.result(i).sizes());
  return held->template as<C>();
}

// By default RMS norm uses the epsilon of the type it computes in; a graph run in double usually records f32 or less.
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
  const int64_t n = norm.length;
  const RowReader<C> x(call, input, kTogether * n);
  const RowWriter<C> y(call, out.tensor(), kTogether * n);
  for_rows(call, (rows.count + kTogether - 1) / kTogether, kTogether * n, [&](int64_t group, int thread) {
    const int64_t first = group * kTogether, together = std::min(kTogether, rows.count - first);
    const C* from = x.piece(first * n, together * n, thread);
    RowStatistics statistics[kTogether];
    for (int64_t r = 0; r < together; ++r) {
      const C* row = from + r * n;
      const double mean = norm.centered ? row_sum(row, n) / count : 0.0;
      const double rstd = 1 / std::sqrt(row_square_distance(row, mean, n) / count + eps);
      statistics[r] = {mean, rstd};
      if (means) means[first + r] = static_cast<C>(mean);
      if (rstds) rstds[first + r] = static_cast<C>(rstd);
    }
    normalize(from, statistics, together, weight, bias, y.piece(first * n, thread), n);
    y.done_piece(first * n, together * n, thread);
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

  // Results 0 (input), 1 (weight) and 2 (bias), where wanted. Processes a block of rows at a time, so that the operands
  // of the parameters' gradients are still in the cache: sums in double, first per block. If there are too few blocks
  // for the threads, rows are distributed one by one for the input's gradient.
  void run(bool of_input, bool of_parameters) const {
    const int64_t n = norm.length, rows = rows_of_length(input, n).count;
    const int64_t blocks = std::max<int64_t>(1, (rows + kRowsPerBlock - 1) / kRowsPerBlock);
    auto* sums = call.scratch().take<double>(of_parameters ? blocks * 2 * n : 1);
    Tensor none = call.scratch().tensor(kDTypeOf<C>, {});
    ResultRows out(call, of_input ? call.result(0) : none, -1);
    RowReader<C> g(call, grad, kTogether * n), x(call, input, kTogether * n);
    RowWriter<C> to(call, out.tensor(), kTogether * n);
    const bool together = of_parameters && (call.team().size() == 1 || blocks >= 4 * call.team().size());
    if (of_input && !together)
      for_rows(call, rows, n, [&](int64_t row, int thread) {
        const C *from = g.piece(row * n, n, thread), *at = x.piece(row * n, n, thread);
        input_gradient(from, at, weight, row_gradient(row, from, at), to.piece(row * n, thread), n);
        to.done_piece(row * n, n, thread);
      });
    call.team().parallel_for_indexed(of_parameters ? blocks : 0, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        double* sum = sums + block * 2 * n;
        std::fill_n(sum, 2 * n, 0.0);
        const int64_t last = std::min(rows, (block + 1) * kRowsPerBlock);
        for (int64_t row = block * kRowsPerBlock; row < last; row += kTogether) {
          const int64_t first = row * n, count = std::min(kTogether, last - row);
          const C *from = g.piece(first, count * n, thread), *at = x.piece(first, count * n, thread);
          RowGradient gradients[kTogether];
          for (int64_t r = 0; r < count; ++r)
            gradients[r] = of_input && together ? row_gradient(row + r, from + r * n, at + r * n)
                                                : RowGradient{mean(row + r), static_cast<double>(rstds[row + r]), 0, 0};
          const GradientRows<C> of{from, at, gradients, of_input && together ? to.piece(first, thread) : nullptr, n};
          if (of.to) add_gradients<true>(count, of, weight, sum, sum + n);
          else add_gradients<false>(count, of, weight, sum, sum + n);
          if (of.to) to.done_piece(first, count * n, thread);
        }
      }
    });
    if (of_input) out.store(call);
    if (of_parameters) store_parameters(sums, blocks);
  }

 private:
  RowGradient row_gradient(int64_t row, const C* from, const C* at) const {
    const double center = mean(row), rstd = static_cast<double>(rstds[row]), count = static_cast<double>(norm.length);
    TwoSums sums = gradient_sums(from, at, center, weight, norm.length);
    return {center, rstd, norm.centered ? sums.first / count : 0.0, sums.second * rstd * rstd / count};
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
