// Group norm and batch norm: statistics over groups of channels, or over each channel. Elements are read and written in
// place, and computed in double.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "librun/cpu/channel_vectors.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/lanes.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

const double* optional_doubles(KernelCall& call, std::string_view name) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return nullptr;
  return contiguous_as(call, call.tensor(name), DType::f64).as<double>();
}

// A result to fill with doubles and store; empty if it is not wanted.
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

// Whether a norm of `input` is computed by vectors of its innermost channels, in place, with tensors of the same type.
bool has_inner_channels(const Tensor& input, std::initializer_list<const Tensor*> others) {
  auto fits = [&](const Tensor* t) {
    return t->is_none() || (t->dtype == input.dtype && !t->conjugate && same_shape(*t, input));
  };
  return input.rank > 2 && is_floating(input.dtype) && is_runnable(input.dtype) && std::ranges::all_of(others, fits) &&
         input.elements() > 0 && inner_channels(input, input.rank - 2) >= 0;
}

// `n` numbers, the same if there are none.
const double* numbers_or(KernelCall& call, const double* given, int64_t n, double otherwise) {
  if (given) return given;
  auto* same = call.scratch().take<double>(n);
  std::fill_n(same, n, otherwise);
  return same;
}

// to = (x - mean) * rstd * scale + shift
template <class C>
SG_CLONES void normalize(const C* x, double mean, double rstd, double scale, double shift, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>((static_cast<double>(x[i]) - mean) * rstd * scale + shift);
}

// The sum of grad * (x - center).
template <class C>
SG_CLONES double centered_dot(const C* grad, const C* x, double center, int64_t n) {
  return sum_lanes(n, [=](int64_t i) { return static_cast<double>(grad[i]) * (static_cast<double>(x[i]) - center); });
}

// A channel's coefficients of the gradient: to = rstd * (grad * scale - shift - (x - mean) * slope)
struct ChannelGradient {
  double mean, rstd, scale, shift, slope;
};

template <class C>
SG_CLONES void input_gradient(const C* grad, const C* x, ChannelGradient by, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double centered = static_cast<double>(x[i]) - by.mean;
    to[i] = static_cast<C>(by.rstd * (static_cast<double>(grad[i]) * by.scale - by.shift - centered * by.slope));
  }
}

// --- group norm ---

struct Groups {
  int64_t batch, groups, channels, inner;  // `channels` per group
  int64_t rows() const { return batch * groups; }
  int64_t length() const { return channels * inner; }
};

// aten.group_norm only gives the number of groups; for instance_norm each channel is a group.
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

template <class C>
void group_norm_as(KernelCall& call, const Groups& g) {
  Tensor input = contiguous(call, call.tensor("input"));
  const double *weight = optional_doubles(call, "weight"), *bias = optional_doubles(call, "bias");
  Wanted means(call, 1, {g.batch, g.groups}), rstds(call, 2, {g.batch, g.groups});
  ResultRows out(call, call.result(0), -1);
  RowReader<C> x(call, input, g.length());
  RowWriter<C> y(call, out.tensor(), g.length());
  double eps = call.number("eps"), count = static_cast<double>(g.length());
  for_rows(call, g.rows(), g.length(), [&](int64_t row, int thread) {
    const C* from = x.row(row, thread);
    C* to = y.row(row, thread);
    double mean = row_sum(from, g.length()) / count,
           rstd = 1 / std::sqrt(row_square_distance(from, mean, g.length()) / count + eps);
    for (int64_t c = 0; c < g.channels; ++c) {
      const int64_t channel = row % g.groups * g.channels + c, at = c * g.inner;
      normalize(from + at, mean, rstd, weight ? weight[channel] : 1.0, bias ? bias[channel] : 0.0, to + at, g.inner);
    }
    y.done(row, thread);
    if (means.data()) means.data()[row] = mean;
    if (rstds.data()) rstds.data()[row] = rstd;
  });
  out.store(call), means.store(), rstds.store();
}

bool is_by_vectors(const Groups& g, const Tensor& input, std::initializer_list<const Tensor*> others) {
  return has_inner_channels(input, others) && input.dim(0) == g.batch && input.dim(1) == g.groups * g.channels;
}

// Sums over groups go along one channel after the other, so that their channels are moved out, for some groups at once.
template <class C>
class GroupMoments {
 public:
  GroupMoments(KernelCall& call, const Groups& g, const Tensor& x)
      : g_(g), x_(x), bundle_(std::min(g.groups, std::lcm(g.channels, kSquare) / g.channels)) {
    lines_ = call.scratch().template take<C>(call.team().size() * bundle_ * g.length());
  }

  void find(KernelCall& call, double eps, double* means, double* rstds) const {
    const int64_t bundles = (g_.groups + bundle_ - 1) / bundle_;
    const double count = static_cast<double>(g_.length());
    for_rows(call, g_.batch * bundles, bundle_ * g_.length(), [&](int64_t task, int thread) {
      const int64_t entry = task / bundles, first = task % bundles * bundle_;
      const int64_t groups = std::min(bundle_, g_.groups - first);
      const C* lines = read(entry, first, groups, thread);
      for (int64_t i = 0; i < groups; ++i, lines += g_.length()) {
        const int64_t at = entry * g_.groups + first + i;
        means[at] = row_sum(lines, g_.length()) / count;
        rstds[at] = 1 / std::sqrt(row_square_distance(lines, means[at], g_.length()) / count + eps);
      }
    });
  }

 private:
  static constexpr int64_t kSquare = 16;  // channels that pack_block moves at once

  const C* read(int64_t entry, int64_t first, int64_t groups, int thread) const {
    const int64_t all = g_.groups * g_.channels;
    const int64_t at = entry * g_.inner * all + first * g_.channels;
    C* to = lines_ + thread * bundle_ * g_.length();
    pack_block(tile_kernels<C>(best_isa()), MatrixView{x_.data + at * dtype_bytes(x_.dtype), x_.dtype, 1, all},
               groups * g_.channels, g_.inner, to, g_.inner);
    return to;
  }

  const Groups& g_;
  const Tensor& x_;
  int64_t bundle_;
  C* lines_;
};

// Numbers of the groups of each entry, by channel.
ByChannel by_channel(KernelCall& call, const Groups& g, const double* of_groups) {
  auto* to = call.scratch().take<double>(g.rows() * g.channels);
  for (int64_t i = 0; i < g.rows() * g.channels; ++i) to[i] = of_groups[i / g.channels];
  return {to, g.groups * g.channels};
}

ChannelVectors vectors_of(const Groups& g) { return {g.batch, g.inner, g.groups * g.channels}; }

void group_norm_by_vectors(KernelCall& call, const Groups& g) {
  const Tensor x = axis_last(call.tensor("input"), 1);
  const double *weight = optional_doubles(call, "weight"), *bias = optional_doubles(call, "bias");
  auto *mean = call.scratch().take<double>(g.rows()), *rstd = call.scratch().take<double>(g.rows());
  const double eps = call.number("eps");
  visit_compute(x.dtype, [&]<class C>() { GroupMoments<C>(call, g, x).find(call, eps, mean, rstd); });
  const ChannelVectors v = vectors_of(g);
  const ResultRows out(call, call.result(0), 1);
  const double *scale = numbers_or(call, weight, v.channels, 1), *shift = numbers_or(call, bias, v.channels, 0);
  normalize_channels(call, v, x, {by_channel(call, g, mean), by_channel(call, g, rstd), {scale, 0}, {shift, 0}},
                     out.tensor());
  Wanted means(call, 1, {g.batch, g.groups}), rstds(call, 2, {g.batch, g.groups});
  if (means.data()) std::copy_n(mean, g.rows(), means.data());
  if (rstds.data()) std::copy_n(rstd, g.rows(), rstds.data());
  out.store(call), means.store(), rstds.store();
}

Status group_norm(KernelCall& call) {
  Groups g = groups_of(call);
  SG_TRY(checked(call, g, call.tensor("input")));
  if (is_by_vectors(g, call.tensor("input"), {&call.result(0)})) return group_norm_by_vectors(call, g), ok_status();
  visit_compute(call.tensor("input").dtype, [&]<class C>() { group_norm_as<C>(call, g); });
  return ok_status();
}

// `sums`: for each channel of each entry, those of grad and of grad * (x - mean).
void group_parameter_gradients(KernelCall& call, const Groups& g, const double* rstds, const double* sums) {
  const int64_t all = g.groups * g.channels;
  Wanted weights(call, 1, {all}), biases(call, 2, {all});
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t c = 0; c < all; ++c) {
      const double* s = sums + 2 * (n * all + c);
      if (weights.data()) weights.data()[c] += s[1] * rstds[n * g.groups + c / g.channels];
      if (biases.data()) biases.data()[c] += s[0];
    }
  }
  weights.store(), biases.store();
}

struct GroupSlopes {
  double shift, slope;
};

// Of one row, from the sums of its channels. weight: of the row's first channel, or null.
GroupSlopes slopes_of(const Groups& g, const double* sums, const double* weight, double rstd) {
  double count = static_cast<double>(g.length()), of_grad = 0, of_normal = 0;
  for (int64_t c = 0; c < g.channels; ++c) {
    of_grad += (weight ? weight[c] : 1.0) * sums[2 * c];
    of_normal += (weight ? weight[c] : 1.0) * sums[2 * c + 1] * rstd;
  }
  return {of_grad / count, rstd * of_normal / count};
}

template <class C>
class GroupNormGradients {
 public:
  GroupNormGradients(KernelCall& call, const Groups& g)
      : call_(call),
        g_(g),
        grad_(call, contiguous(call, call.tensor("grad_out")), g.length()),
        x_(call, contiguous(call, call.tensor("input")), g.length()),
        means_(optional_doubles(call, "mean")),
        rstds_(optional_doubles(call, "rstd")),
        weight_(optional_doubles(call, "weight")),
        sums_(call.scratch().take<double>(2 * g.rows() * g.channels + 1)) {}

  // Result 0 if it is wanted, and for each channel of each entry the sums of grad and of grad * (x - mean).
  void of_input() {
    const bool wanted = !call_.result(0).is_none();
    Tensor none = call_.scratch().tensor(kDTypeOf<C>, {});
    ResultRows out(call_, wanted ? call_.result(0) : none, -1);
    RowWriter<C> to(call_, out.tensor(), g_.length());
    for_rows(call_, g_.rows(), g_.length(), [&](int64_t row, int thread) {
      const C *grad = grad_.row(row, thread), *x = x_.row(row, thread);
      double* sums = sums_ + 2 * row * g_.channels;
      for (int64_t c = 0; c < g_.channels; ++c) {
        sums[2 * c] = row_sum(grad + c * g_.inner, g_.inner);
        sums[2 * c + 1] = centered_dot(grad + c * g_.inner, x + c * g_.inner, means_[row], g_.inner);
      }
      if (!wanted) return;
      of_row(row, grad, x, to.row(row, thread));
      to.done(row, thread);
    });
    if (wanted) out.store(call_);
  }

  void of_parameters() { group_parameter_gradients(call_, g_, rstds_, sums_); }

 private:
  void of_row(int64_t row, const C* grad, const C* x, C* to) const {
    const double *sums = sums_ + 2 * row * g_.channels,
                 *weight = weight_ ? weight_ + row % g_.groups * g_.channels : nullptr;
    const double rstd = rstds_[row];
    const GroupSlopes by = slopes_of(g_, sums, weight, rstd);
    for (int64_t c = 0; c < g_.channels; ++c)
      input_gradient(grad + c * g_.inner, x + c * g_.inner,
                     {means_[row], rstd, weight ? weight[c] : 1.0, by.shift, by.slope}, to + c * g_.inner, g_.inner);
  }

  KernelCall& call_;
  const Groups& g_;
  RowReader<C> grad_, x_;
  const double *means_, *rstds_, *weight_;
  double* sums_;
};

void group_norm_gradients_by_vectors(KernelCall& call, const Groups& g) {
  const Tensor x = axis_last(call.tensor("input"), 1);
  const Rows grad = rows_of(call, call.tensor("grad_out"), 1);
  const ChannelVectors v = vectors_of(g);
  const double *rstds = optional_doubles(call, "rstd"), *weight = optional_doubles(call, "weight");
  const ByChannel mean = by_channel(call, g, optional_doubles(call, "mean"));
  const int64_t count = v.runs * v.channels;
  auto take = [&](int64_t n) { return call.scratch().take<double>(n); };
  double *of_grad = take(count), *dots = take(count), *sums = take(2 * count);
  channel_sums(call, v, grad.tensor, of_grad);
  channel_centered_dots(call, v, grad.tensor, x, mean, dots);
  for (int64_t i = 0; i < count; ++i) sums[2 * i] = of_grad[i], sums[2 * i + 1] = dots[i];
  if (!call.result(0).is_none()) {
    double *shift = take(g.rows()), *slope = take(g.rows());
    for (int64_t row = 0; row < g.rows(); ++row) {
      const double* own = weight ? weight + row % g.groups * g.channels : nullptr;
      const GroupSlopes by = slopes_of(g, sums + 2 * row * g.channels, own, rstds[row]);
      shift[row] = by.shift, slope[row] = by.slope;
    }
    const ResultRows out(call, call.result(0), 1);
    channel_input_gradients(call, v, grad.tensor, x,
                            {mean,
                             by_channel(call, g, rstds),
                             {numbers_or(call, weight, v.channels, 1), 0},
                             by_channel(call, g, shift),
                             by_channel(call, g, slope)},
                            out.tensor());
    out.store(call);
  }
  group_parameter_gradients(call, g, rstds, sums);
}

Status group_norm_backward(KernelCall& call) {
  Groups g = groups_of(call);
  SG_TRY(checked(call, g, call.tensor("input")));
  if (is_by_vectors(g, call.tensor("input"), {&call.tensor("grad_out"), &call.result(0)}))
    return group_norm_gradients_by_vectors(call, g), ok_status();
  visit_compute(call.tensor("input").dtype, [&]<class C>() {
    GroupNormGradients<C> gradients(call, g);
    gradients.of_input();
    gradients.of_parameters();
  });
  return ok_status();
}

// --- batch norm ---

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
      normalize(x.row(row, thread), m.mean, rstd, weight ? weight[c] : 1.0, bias ? bias[c] : 0.0, y.row(row, thread),
                runs.length);
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
void update_running_of_entries(KernelCall& call, const Groups& g) {
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
  visit_compute(call.tensor("input").dtype, [&]<class C>() { update_running_of_entries<C>(call, groups_of(call)); });
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
      of_normal += centered_dot(g, x.row(row, thread), mean[c], runs.length);
    });
    of_normal *= rstd;
    double shift = save ? of_grad / count : 0, slope = save ? of_normal * rstd / count : 0;
    for (int64_t n = 0; wanted && n < runs.runs; ++n) {
      int64_t row = n * runs.channels + c;
      input_gradient(grad.row(row, thread), x.row(row, thread), {mean[c], scale, 1.0, shift, slope},
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
