// Group norm and batch norm: statistics over groups of channels, or over each channel. Elements are read and written in
// place, and computed in double.
#include <cmath>
#include <utility>

#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/lanes.h"
#include "librun/cpu/rows.h"

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

Status group_norm(KernelCall& call) {
  Groups g = groups_of(call);
  SG_TRY(checked(call, g, call.tensor("input")));
  visit_compute(call.tensor("input").dtype, [&]<class C>() { group_norm_as<C>(call, g); });
  return ok_status();
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

  void of_parameters() {
    const int64_t all = g_.groups * g_.channels;
    Wanted weights(call_, 1, {all}), biases(call_, 2, {all});
    for (int64_t n = 0; n < g_.batch; ++n) {
      for (int64_t c = 0; c < all; ++c) {
        const double* s = sums_ + 2 * (n * all + c);
        if (weights.data()) weights.data()[c] += s[1] * rstds_[n * g_.groups + c / g_.channels];
        if (biases.data()) biases.data()[c] += s[0];
      }
    }
    weights.store(), biases.store();
  }

 private:
  void of_row(int64_t row, const C* grad, const C* x, C* to) const {
    const double *sums = sums_ + 2 * row * g_.channels,
                 *weight = weight_ ? weight_ + row % g_.groups * g_.channels : nullptr;
    double rstd = rstds_[row], count = static_cast<double>(g_.length()), of_grad = 0, of_normal = 0;
    for (int64_t c = 0; c < g_.channels; ++c) {
      of_grad += (weight ? weight[c] : 1.0) * sums[2 * c];
      of_normal += (weight ? weight[c] : 1.0) * sums[2 * c + 1] * rstd;
    }
    for (int64_t c = 0; c < g_.channels; ++c)
      input_gradient(grad + c * g_.inner, x + c * g_.inner,
                     {means_[row], rstd, weight ? weight[c] : 1.0, of_grad / count, rstd * of_normal / count},
                     to + c * g_.inner, g_.inner);
  }

  KernelCall& call_;
  const Groups& g_;
  RowReader<C> grad_, x_;
  const double *means_, *rstds_, *weight_;
  double* sums_;
};

Status group_norm_backward(KernelCall& call) {
  Groups g = groups_of(call);
  SG_TRY(checked(call, g, call.tensor("input")));
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

Status batch_norm_as(KernelCall& call, bool training) {
  auto has = [&](std::string_view name) { return call.op().param_index(name) >= 0 && call.has(name); };
  if (!training && !(has("running_mean") && has("running_var")))
    return call.fail("running statistics are needed outside of training");
  visit_compute(call.tensor("input").dtype, [&]<class C>() { batch_norm_of<C>(call, training); });
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

Status batch_norm_backward(KernelCall& call) {
  bool train = call.flag("train");
  const double *mean = optional_doubles(call, train ? "save_mean" : "running_mean"),
               *save = train ? optional_doubles(call, "save_invstd") : nullptr,
               *running_var = train ? nullptr : optional_doubles(call, "running_var");
  if (!mean || (train ? !save : !running_var)) return call.fail("the statistics of the forward op are missing");
  visit_compute(call.tensor("input").dtype, [&]<class C>() { batch_norm_gradients<C>(call, mean, save, running_var); });
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
