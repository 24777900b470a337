// Batch norm: statistics over each channel; and instance norm, over each channel of each entry.
#include <algorithm>
#include <cmath>
#include <utility>

#include "librun/cpu/channel_norm.h"
#include "librun/cpu/channel_vectors.h"
#include "librun/cpu/group_norm.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

Tensor channel_first(const Tensor& t) { return swap_axes(t, 0, 1); }

// A tensor [batch, channels, ..] as runs of elements of one channel: run n of channel c is row n * channels + c. If
// runs would be short, channels are moved first, and each has a single run.
struct ChannelRuns {
  int64_t runs, channels, length;
  bool channel_first;

  explicit ChannelRuns(const Tensor& input) : runs(input.dim(0)), channels(input.dim(1)), length(1) {
    constexpr int64_t kShort = 32;
    for (int i = 2; i < input.rank; ++i) length *= input.dim(i);
    channel_first = length < kShort;
    if (channel_first) length *= std::exchange(runs, 1);
  }
  int64_t count() const { return runs * length; }  // per channel
  Tensor of(const Tensor& t) const { return channel_first ? sg::cpu::channel_first(t) : t; }

  template <class Fn>  // fn(row) for the rows of channel c
  void each(int64_t c, const Fn& fn) const {
    for (int64_t n = 0; n < runs; ++n) fn(n * channels + c);
  }
};

// Running statistics follow those of the batch; the stored variance is the unbiased one.
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

struct Moments {
  double mean, variance;
};

template <class C>
Moments moments_of(const ChannelRuns& runs, const RowReader<C>& x, int64_t c, int thread) {
  double count = static_cast<double>(runs.count()), sum = 0, square = 0;
  runs.each(c, [&](int64_t row) { sum += row_sum(x.row(row, thread), runs.length); });
  runs.each(c, [&](int64_t row) { square += row_square_distance(x.row(row, thread), sum / count, runs.length); });
  return {sum / count, square / count};
}

template <class C>
void batch_norm_of(KernelCall& call, bool training) {
  const Tensor& input = call.tensor("input");
  const ChannelRuns runs(input);
  const int64_t channels = runs.channels;
  const double *weight = optional_doubles(call, "weight"), *bias = optional_doubles(call, "bias");
  const double *running_mean = training ? nullptr : optional_doubles(call, "running_mean"),
               *running_var = training ? nullptr : optional_doubles(call, "running_var");
  auto *mean = call.scratch().take<double>(channels + 1), *variance = call.scratch().take<double>(channels + 1);
  Wanted means(call, 1, {channels}), rstds(call, 2, {channels});
  ResultRows out(call, runs.of(call.result(0)), -1);
  RowReader<C> x(call, contiguous(call, runs.of(input)), runs.length);
  RowWriter<C> y(call, out.tensor(), runs.length);
  double eps = call.number("eps");
  for_rows(call, channels, runs.count(), [&](int64_t c, int thread) {
    Moments m = training ? moments_of(runs, x, c, thread) : Moments{running_mean[c], running_var[c]};
    double rstd = 1 / std::sqrt(m.variance + eps);
    runs.each(c, [&](int64_t row) {
      normalize_row(x.row(row, thread), m.mean, rstd, weight ? weight[c] : 1.0, bias ? bias[c] : 0.0,
                    y.row(row, thread), runs.length);
      y.done(row, thread);
    });
    mean[c] = m.mean, variance[c] = m.variance;
    if (means.data()) means.data()[c] = m.mean;
    if (rstds.data()) rstds.data()[c] = rstd;
  });
  out.store(call), means.store(), rstds.store();
  if (training) update_running(call, mean, variance, channels, runs.count());
}

// The sum over runs of each channel, in their order.
void add_runs(const ChannelVectors& v, const double* sums, double* to) {
  std::fill_n(to, v.channels, 0.0);
  for (int64_t i = 0; i < v.runs * v.channels; ++i) to[i % v.channels] += sums[i];
}

// Runs as in ChannelRuns, so that sums have the same bits.
ChannelVectors vectors_of(const Tensor& input) {
  const ChannelRuns runs(input);
  return {runs.runs, runs.length, runs.channels};
}

void moments_by_vectors(KernelCall& call, const ChannelVectors& v, const Tensor& x, double* mean, double* variance) {
  auto* sums = call.scratch().take<double>(v.runs * v.channels);
  const double count = static_cast<double>(v.runs * v.length);
  channel_sums(call, v, x, sums);
  add_runs(v, sums, mean);
  for (int64_t c = 0; c < v.channels; ++c) mean[c] /= count;
  channel_square_distances(call, v, x, {mean, 0}, sums);
  add_runs(v, sums, variance);
  for (int64_t c = 0; c < v.channels; ++c) variance[c] /= count;
}

void batch_norm_by_vectors(KernelCall& call, bool training) {
  const Tensor x = axis_last(call.tensor("input"), 1);
  const ChannelVectors v = vectors_of(call.tensor("input"));
  const double *weight = optional_doubles(call, "weight"), *bias = optional_doubles(call, "bias");
  auto *mean = call.scratch().take<double>(v.channels), *variance = call.scratch().take<double>(v.channels),
       *rstd = call.scratch().take<double>(v.channels);
  if (training) {
    moments_by_vectors(call, v, x, mean, variance);
  } else {
    std::copy_n(optional_doubles(call, "running_mean"), v.channels, mean);
    std::copy_n(optional_doubles(call, "running_var"), v.channels, variance);
  }
  const double eps = call.number("eps");
  for (int64_t c = 0; c < v.channels; ++c) rstd[c] = 1 / std::sqrt(variance[c] + eps);
  Wanted means(call, 1, {v.channels}), rstds(call, 2, {v.channels});
  if (means.data()) std::copy_n(mean, v.channels, means.data());
  if (rstds.data()) std::copy_n(rstd, v.channels, rstds.data());
  const ResultRows out(call, call.result(0), 1);
  const double *scale = numbers_or(call, weight, v.channels, 1), *shift = numbers_or(call, bias, v.channels, 0);
  normalize_channels(call, v, x, {{mean, 0}, {rstd, 0}, {scale, 0}, {shift, 0}}, out.tensor());
  out.store(call), means.store(), rstds.store();
  if (training) update_running(call, mean, variance, v.channels, v.runs * v.length);
}

Status batch_norm_as(KernelCall& call, bool training) {
  auto has = [&](std::string_view name) { return call.op().param_index(name) >= 0 && call.has(name); };
  if (!training && !(has("running_mean") && has("running_var")))
    return call.fail("running statistics are needed outside of training");
  const Tensor& input = call.tensor("input");
  if (has_inner_channels(input, {&call.result(0)})) return batch_norm_by_vectors(call, training), ok_status();
  visit_compute(input.dtype, [&]<class C>() { batch_norm_of<C>(call, training); });
  return ok_status();
}

Status batch_norm(KernelCall& call) { return batch_norm_as(call, call.flag("training")); }
Status batch_norm_eval(KernelCall& call) { return batch_norm_as(call, false); }

// Running statistics follow the mean over the entries; variances are the unbiased ones.
template <class C>
void update_running_of_entries(KernelCall& call, const NormGroups& g) {
  if (g.batch == 0) return;
  RowReader<C> x(call, contiguous(call, call.tensor("input")), g.length());
  const double count = static_cast<double>(g.length()), batch = static_cast<double>(g.batch);
  auto *mean = call.scratch().take<double>(g.groups + 1), *variance = call.scratch().take<double>(g.groups + 1);
  for_rows(call, g.groups, g.batch * g.length(), [&](int64_t c, int thread) {
    mean[c] = variance[c] = 0;
    for (int64_t n = 0; n < g.batch; ++n) {
      const C* from = x.row(n * g.groups + c, thread);
      double own = row_sum(from, g.length()) / count;
      mean[c] += own / batch;
      variance[c] += row_square_distance(from, own, g.length()) / count / batch;
    }
  });
  update_running(call, mean, variance, g.groups, g.length());
}

// Normalizes each channel of each entry separately.
Status instance_norm(KernelCall& call) {
  if (!call.flag("use_input_stats")) return batch_norm_as(call, false);
  SG_TRY(group_norm(call));
  if (!call.has("running_mean") && !call.has("running_var")) return ok_status();
  visit_compute(call.tensor("input").dtype,
                [&]<class C>() { update_running_of_entries<C>(call, norm_groups_of(call)); });
  return ok_status();
}

template <class C>
void batch_norm_gradients(KernelCall& call, const double* mean, const double* save, const double* running_var) {
  const ChannelRuns runs(call.tensor("input"));
  const double* weight = optional_doubles(call, "weight");
  const bool wanted = !call.result(0).is_none();
  Tensor none = call.scratch().tensor(kDTypeOf<C>, {});
  ResultRows out(call, wanted ? runs.of(call.result(0)) : none, -1);
  RowReader<C> x(call, contiguous(call, runs.of(call.tensor("input"))), runs.length),
      grad(call, contiguous(call, runs.of(call.tensor("grad_out"))), runs.length);
  RowWriter<C> to(call, out.tensor(), runs.length);
  Wanted weights(call, 1, {runs.channels}), biases(call, 2, {runs.channels});
  const double eps = call.number("eps"), count = static_cast<double>(runs.count());
  for_rows(call, runs.channels, runs.count(), [&](int64_t c, int thread) {
    double rstd = save ? save[c] : 1 / std::sqrt(running_var[c] + eps), scale = rstd * (weight ? weight[c] : 1);
    double of_grad = 0, of_normal = 0;
    runs.each(c, [&](int64_t row) {
      const C* g = grad.row(row, thread);
      of_grad += row_sum(g, runs.length);
      of_normal += centered_dot_of_row(g, x.row(row, thread), mean[c], runs.length);
    });
    of_normal *= rstd;
    double shift = save ? of_grad / count : 0, slope = save ? of_normal * rstd / count : 0;
    for (int64_t n = 0; wanted && n < runs.runs; ++n) {
      int64_t row = n * runs.channels + c;
      input_gradient_of_row(grad.row(row, thread), x.row(row, thread), {mean[c], scale, 1.0, shift, slope},
                            to.row(row, thread), runs.length);
      to.done(row, thread);
    }
    if (weights.data()) weights.data()[c] = of_normal;
    if (biases.data()) biases.data()[c] = of_grad;
  });
  if (wanted) out.store(call);
  weights.store(), biases.store();
}

void batch_norm_gradients_by_vectors(KernelCall& call, const double* mean, const double* save,
                                     const double* running_var) {
  const Tensor x = axis_last(call.tensor("input"), 1);
  const ChannelVectors v = vectors_of(call.tensor("input"));
  const Rows grad = rows_of(call, call.tensor("grad_out"), 1);
  const double eps = call.number("eps"), count = static_cast<double>(v.runs * v.length);
  const double* weight = numbers_or(call, optional_doubles(call, "weight"), v.channels, 1);
  auto* sums = call.scratch().take<double>(v.runs * v.channels);
  auto take = [&] { return call.scratch().take<double>(v.channels); };
  double *of_grad = take(), *of_normal = take(), *scale = take(), *shift = take(), *slope = take();
  channel_sums(call, v, grad.tensor, sums);
  add_runs(v, sums, of_grad);
  channel_centered_dots(call, v, grad.tensor, x, {mean, 0}, sums);
  add_runs(v, sums, of_normal);
  for (int64_t c = 0; c < v.channels; ++c) {
    const double rstd = save ? save[c] : 1 / std::sqrt(running_var[c] + eps);
    scale[c] = rstd * weight[c];
    of_normal[c] *= rstd;
    shift[c] = save ? of_grad[c] / count : 0, slope[c] = save ? of_normal[c] * rstd / count : 0;
  }
  if (!call.result(0).is_none()) {
    const ResultRows out(call, call.result(0), 1);
    const double* one = numbers_or(call, nullptr, v.channels, 1);
    channel_input_gradients(call, v, grad.tensor, x, {{mean, 0}, {scale, 0}, {one, 0}, {shift, 0}, {slope, 0}},
                            out.tensor());
    out.store(call);
  }
  Wanted weights(call, 1, {v.channels}), biases(call, 2, {v.channels});
  if (weights.data()) std::copy_n(of_normal, v.channels, weights.data());
  if (biases.data()) std::copy_n(of_grad, v.channels, biases.data());
  weights.store(), biases.store();
}

Status batch_norm_backward(KernelCall& call) {
  bool train = call.flag("train");
  const double *mean = optional_doubles(call, train ? "save_mean" : "running_mean"),
               *save = train ? optional_doubles(call, "save_invstd") : nullptr,
               *running_var = train ? nullptr : optional_doubles(call, "running_var");
  if (!mean || (train ? !save : !running_var)) return call.fail("the statistics of the forward op are missing");
  const Tensor& input = call.tensor("input");
  if (has_inner_channels(input, {&call.tensor("grad_out"), &call.result(0)}))
    return batch_norm_gradients_by_vectors(call, mean, save, running_var), ok_status();
  visit_compute(input.dtype, [&]<class C>() { batch_norm_gradients<C>(call, mean, save, running_var); });
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.instance_norm.default", instance_norm},
    {"aten.batch_norm.default", batch_norm},
    {"aten.native_batch_norm.default", batch_norm},
    {"aten._native_batch_norm_legit.default", batch_norm},
    {"aten._native_batch_norm_legit.no_stats", batch_norm},
    {"aten._native_batch_norm_legit_no_training.default", batch_norm_eval},
    {"aten.native_batch_norm_backward.default", batch_norm_backward},
};

}  // namespace

std::span<const KernelRow> batch_norm_kernels() { return kRows; }

}  // namespace sg::cpu
