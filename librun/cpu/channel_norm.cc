// Group norm and batch norm: statistics over parts of the channels, or over all of one channel. Computed in double.
#include <cmath>

#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

const double* optional_doubles(KernelCall& call, std::string_view name) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return nullptr;
  return contiguous_as(call, call.tensor(name), DType::f64).as<double>();
}

// A result of doubles to fill and store; nothing where it is not wanted.
class Wanted {
 public:
  Wanted(KernelCall& call, size_t i, std::initializer_list<int64_t> shape) : call_(call), i_(i) {
    if (i >= call.result_count() || call.result(i).is_none() || call.result(i).elements() == 0) return;
    tensor_ = call.scratch().tensor(DType::f64, std::span<const int64_t>(shape.begin(), shape.size()));
    fill(call, tensor_, Scalar::integer(0));
  }
  double* data() const { return tensor_.is_none() ? nullptr : tensor_.as<double>(); }
  void store() const {
    if (!tensor_.is_none())
      copy(call_, call_.result(i_), make_tensor(tensor_.data, DType::f64, call_.result(i_).sizes()));
  }

 private:
  KernelCall& call_;
  size_t i_;
  Tensor tensor_;
};

// --- group norm ---

struct Groups {
  int64_t batch, groups, channels, inner;  // `channels` of one group
  int64_t rows() const { return batch * groups; }
  int64_t length() const { return channels * inner; }
};

// aten.group_norm says no more than the number of groups; of instance_norm each channel is one.
Groups groups_of(KernelCall& call) {
  if (call.op().param_index("group") < 0) {
    const Tensor& input = call.tensor("input");
    int64_t all = input.dim(1), inner = 1;
    for (int i = 2; i < input.rank; ++i) inner *= input.dim(i);
    int64_t groups = call.op().param_index("num_groups") >= 0 ? call.integer("num_groups") : all;
    return {input.dim(0), groups, groups > 0 ? all / groups : 0, inner};
  }
  int64_t groups = call.integer("group");
  return {call.integer("N"), groups, groups > 0 ? call.integer("C") / groups : 0, call.integer("HxW")};
}

Status checked(KernelCall& call, const Groups& g, const Tensor& input) {
  bool divides = call.op().param_index("C") < 0 || (g.groups > 0 && call.integer("C") % g.groups == 0);
  if (divides && g.rows() * g.length() == input.elements()) return ok_status();
  return call.fail("the groups do not divide the input");
}

Status group_norm(KernelCall& call) {
  Groups g = groups_of(call);
  SG_TRY(checked(call, g, call.tensor("input")));
  const auto* x = contiguous_as(call, call.tensor("input"), DType::f64).as<double>();
  const double *weight = optional_doubles(call, "weight"), *bias = optional_doubles(call, "bias");
  Wanted out(call, 0, {g.rows(), g.length()}), means(call, 1, {g.batch, g.groups}), rstds(call, 2, {g.batch, g.groups});
  double eps = call.number("eps"), count = static_cast<double>(g.length());
  for_rows(call, g.rows(), g.length(), [&](int64_t row, int) {
    const double* from = x + row * g.length();
    double mean = row_sum(from, g.length()) / count,
           rstd = 1 / std::sqrt(row_square_distance(from, mean, g.length()) / count + eps);
    for (int64_t c = 0; out.data() && c < g.channels; ++c) {
      const int64_t channel = row % g.groups * g.channels + c;
      const double scale = weight ? weight[channel] : 1, shift = bias ? bias[channel] : 0;
      double* to = out.data() + row * g.length();
      for (int64_t i = c * g.inner; i < (c + 1) * g.inner; ++i) to[i] = (from[i] - mean) * rstd * scale + shift;
    }
    if (means.data()) means.data()[row] = mean;
    if (rstds.data()) rstds.data()[row] = rstd;
  });
  out.store(), means.store(), rstds.store();
  return ok_status();
}

Status group_norm_backward(KernelCall& call) {
  Groups g = groups_of(call);
  SG_TRY(checked(call, g, call.tensor("input")));
  const auto* x = contiguous_as(call, call.tensor("input"), DType::f64).as<double>();
  const auto* grad = contiguous_as(call, call.tensor("grad_out"), DType::f64).as<double>();
  const double *means = optional_doubles(call, "mean"), *rstds = optional_doubles(call, "rstd"),
               *weight = optional_doubles(call, "weight");
  int64_t all = g.groups * g.channels;
  Wanted out(call, 0, {g.rows(), g.length()}), weights(call, 1, {all}), biases(call, 2, {all});
  auto* sums = call.scratch().take<double>(2 * g.batch * all + 1);  // by batch and channel: of grad, of grad * x
  for_rows(call, g.batch * all, g.inner, [&](int64_t channel, int) {
    sums[2 * channel] = row_sum(grad + channel * g.inner, g.inner);
    sums[2 * channel + 1] = row_dot(grad + channel * g.inner, x + channel * g.inner, g.inner);
  });
  for_rows(call, out.data() ? g.rows() : 0, g.length(), [&](int64_t row, int) {
    double mean = means[row], rstd = rstds[row], of_grad = 0, of_normal = 0;
    auto weight_of = [&](int64_t c) { return weight ? weight[row % g.groups * g.channels + c] : 1.0; };
    for (int64_t c = 0; c < g.channels; ++c) {
      const double* s = sums + 2 * (row * g.channels + c);
      of_grad += weight_of(c) * s[0];
      of_normal += weight_of(c) * (s[1] - mean * s[0]) * rstd;
    }
    const double count = static_cast<double>(g.length()), shift = of_grad / count;
    for (int64_t c = 0; c < g.channels; ++c) {
      const double scale = weight_of(c);
      const int64_t begin = row * g.length() + c * g.inner;
      for (int64_t i = begin; i < begin + g.inner; ++i)
        out.data()[i] = rstd * (grad[i] * scale - shift - (x[i] - mean) * rstd * of_normal / count);
    }
  });
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t c = 0; c < all; ++c) {
      const double* s = sums + 2 * (n * all + c);
      int64_t row = n * g.groups + c / g.channels;
      if (weights.data()) weights.data()[c] += (s[1] - means[row] * s[0]) * rstds[row];
      if (biases.data()) biases.data()[c] += s[0];
    }
  }
  out.store(), weights.store(), biases.store();
  return ok_status();
}

// --- batch norm ---

Tensor channel_first(const Tensor& t) { return swap_axes(t, 0, 1); }

// Rows of one channel each.
const double* channel_rows(KernelCall& call, const Tensor& t) {
  return contiguous_as(call, channel_first(t), DType::f64).as<double>();
}

void store_channel_rows(KernelCall& call, const Tensor& out, std::byte* rows) {
  Tensor target = channel_first(out);
  copy(call, target, make_tensor(rows, DType::f64, target.sizes()));
}

// Running statistics follow those of the batch; the variance that they keep is the unbiased one.
void update_running(KernelCall& call, const double* mean, const double* variance, int64_t channels, int64_t count) {
  double momentum = call.number("momentum");
  auto update = [&](std::string_view name, const double* now, double factor) {
    if (call.op().param_index(name) < 0 || !call.has(name)) return;
    const Tensor& running = call.tensor(name);
    Tensor kept = call.scratch().tensor(DType::f64, running.sizes());
    copy(call, kept, running);
    for (int64_t c = 0; c < channels; ++c) kept.as<double>()[c] += momentum * (now[c] * factor - kept.as<double>()[c]);
    copy(call, running, kept);
  };
  update("running_mean", mean, 1);
  update("running_var", variance, static_cast<double>(count) / static_cast<double>(count - 1));
}

Status batch_norm_as(KernelCall& call, bool training) {
  const Tensor& input = call.tensor("input");
  int64_t channels = input.dim(1), count = channels == 0 ? 0 : input.elements() / channels;
  const double* x = channel_rows(call, input);
  const double *weight = optional_doubles(call, "weight"), *bias = optional_doubles(call, "bias");
  const double *running_mean = optional_doubles(call, "running_mean"),
               *running_var = optional_doubles(call, "running_var");
  if (!training && (!running_mean || !running_var))
    return call.fail("running statistics are needed outside of training");
  auto *mean = call.scratch().take<double>(channels + 1), *variance = call.scratch().take<double>(channels + 1);
  auto* out = call.scratch().take<double>(input.elements() + 1);
  Wanted means(call, 1, {channels}), rstds(call, 2, {channels});
  double eps = call.number("eps");
  for_rows(call, channels, count, [&](int64_t c, int) {
    const double* from = x + c * count;
    mean[c] = training ? row_sum(from, count) / static_cast<double>(count) : running_mean[c];
    variance[c] = training ? row_square_distance(from, mean[c], count) / static_cast<double>(count) : running_var[c];
    double rstd = 1 / std::sqrt(variance[c] + eps);
    for (int64_t i = 0; i < count; ++i)
      out[c * count + i] = (from[i] - mean[c]) * rstd * (weight ? weight[c] : 1) + (bias ? bias[c] : 0);
    if (means.data()) means.data()[c] = mean[c];
    if (rstds.data()) rstds.data()[c] = rstd;
  });
  store_channel_rows(call, call.result(0), reinterpret_cast<std::byte*>(out));
  means.store(), rstds.store();
  if (training) update_running(call, mean, variance, channels, count);
  return ok_status();
}

Status batch_norm(KernelCall& call) { return batch_norm_as(call, call.flag("training")); }
Status batch_norm_eval(KernelCall& call) { return batch_norm_as(call, false); }

// Each channel of each entry by itself. Running statistics follow the mean over the entries, of variances the unbiased
// ones.
Status instance_norm(KernelCall& call) {
  if (!call.flag("use_input_stats")) return batch_norm_as(call, false);
  const Tensor& input = call.tensor("input");
  Groups g = groups_of(call);
  SG_TRY(group_norm(call));
  if (!call.has("running_mean") && !call.has("running_var")) return ok_status();
  const auto* x = contiguous_as(call, input, DType::f64).as<double>();
  auto *mean = call.scratch().take<double>(g.groups + 1), *variance = call.scratch().take<double>(g.groups + 1);
  for_rows(call, g.groups, g.batch * g.length(), [&](int64_t c, int) {
    mean[c] = variance[c] = 0;
    for (int64_t n = 0; n < g.batch; ++n) {
      const double* from = x + (n * g.groups + c) * g.length();
      double own = row_sum(from, g.length()) / static_cast<double>(g.length());
      mean[c] += own / static_cast<double>(g.batch);
      variance[c] +=
          row_square_distance(from, own, g.length()) / static_cast<double>(g.length()) / static_cast<double>(g.batch);
    }
  });
  if (g.batch > 0) update_running(call, mean, variance, g.groups, g.length());
  return ok_status();
}

Status batch_norm_backward(KernelCall& call) {
  const Tensor& input = call.tensor("input");
  int64_t channels = input.dim(1), count = channels == 0 ? 0 : input.elements() / channels;
  const double *x = channel_rows(call, input), *grad = channel_rows(call, call.tensor("grad_out"));
  bool train = call.flag("train");
  const double *weight = optional_doubles(call, "weight"),
               *mean = optional_doubles(call, train ? "save_mean" : "running_mean");
  const double *save = optional_doubles(call, "save_invstd"), *running_var = optional_doubles(call, "running_var");
  if (!mean || (train ? !save : !running_var)) return call.fail("the statistics of the forward op are missing");
  bool wanted = !call.result(0).is_none();
  auto* out = call.scratch().take<double>(wanted ? input.elements() + 1 : 1);
  Wanted weights(call, 1, {channels}), biases(call, 2, {channels});
  double eps = call.number("eps");
  for_rows(call, channels, count, [&](int64_t c, int) {
    const double *from = x + c * count, *g = grad + c * count;
    double rstd = train ? save[c] : 1 / std::sqrt(running_var[c] + eps), scale = rstd * (weight ? weight[c] : 1);
    double of_grad = row_sum(g, count), of_normal = 0;
    for (int64_t i = 0; i < count; ++i) of_normal += g[i] * (from[i] - mean[c]);
    of_normal *= rstd;
    double shift = train ? of_grad / static_cast<double>(count) : 0,
           slope = train ? of_normal * rstd / static_cast<double>(count) : 0;
    for (int64_t i = 0; wanted && i < count; ++i)
      out[c * count + i] = scale * (g[i] - shift - (from[i] - mean[c]) * slope);
    if (weights.data()) weights.data()[c] = of_normal;
    if (biases.data()) biases.data()[c] = of_grad;
  });
  if (wanted) store_channel_rows(call, call.result(0), reinterpret_cast<std::byte*>(out));
  weights.store(), biases.store();
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.native_group_norm.default", group_norm},
    {"aten.native_group_norm_backward.default", group_norm_backward},
    {"aten.group_norm.default", group_norm},
    {"aten.instance_norm.default", instance_norm},
    {"aten.batch_norm.default", batch_norm},
    {"aten.native_batch_norm.default", batch_norm},
    {"aten._native_batch_norm_legit.default", batch_norm},
    {"aten._native_batch_norm_legit.no_stats", batch_norm},
    {"aten._native_batch_norm_legit_no_training.default", batch_norm_eval},
    {"aten.native_batch_norm_backward.default", batch_norm_backward},
};

}  // namespace

std::span<const KernelRow> channel_norm_kernels() { return kRows; }

}  // namespace sg::cpu
