// Batch, group and instance norm: from calls to kernels/channel.h, with the results of cpu/batch_norm.cc and
// cpu/group_norm.cc.
#include <algorithm>
#include <array>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/channel.h"

namespace sg::cuda {
namespace {

View optional_view(const KernelCall& call, std::string_view name) {
  return call.op().param_index(name) >= 0 && call.has(name) ? Device::view(call.tensor(name)) : View();
}
View wanted_view(KernelCall& call, size_t i) {
  const bool wanted = i < call.result_count() && !call.result(i).is_none() && call.result(i).elements() > 0;
  return wanted ? Device::view(call.result(i)) : View();
}

double* doubles(KernelCall& call, int64_t count) {
  return backend_of(call).scratch(DType::f64, std::array{std::max<int64_t>(count, 1)}).as<double>();
}

// Stores a result with one number per row.
void store(KernelCall& call, size_t i, double* from) {
  if (!wanted_view(call, i).data) return;
  const Tensor& to = call.result(i);
  backend_of(call).copy(to, make_tensor(reinterpret_cast<std::byte*>(from), DType::f64, to.sizes()));
}

struct Sizes {
  int64_t batch = 0, channels = 0, inner = 1, groups = 0;
};

Sizes sizes_of(const Tensor& input) {
  Sizes s{input.dim(0), input.dim(1), 1, 0};
  for (int i = 2; i < input.rank; ++i) s.inner *= input.dim(i);
  return s;
}

ChannelArgs channel_args(KernelCall& call, const Sizes& s) {
  ChannelArgs args;
  args.from = Device::view(call.tensor("input"));
  args.weight = optional_view(call, "weight");
  args.bias = optional_view(call, "bias");
  args.channels = s.channels;
  args.inner = s.inner;
  args.groups = s.groups;
  args.eps = call.op().param_index("eps") >= 0 ? call.number("eps") : 0;
  const int64_t each = s.groups == 0 ? 1 : s.channels / s.groups * s.inner;
  if (s.groups == 0) args.rows = {s.channels, s.batch, s.channels * s.inner, s.inner, s.inner};
  else args.rows = {s.batch * s.groups, 1, 0, each, each};
  return args;
}

int64_t blocks_of_rows(int64_t rows) { return std::min<int64_t>(rows, 1 << 16); }

void normalize(KernelCall& call, ChannelArgs args) {
  args.to = Device::view(call.result(0));
  device_of(call).launch("channel_normalize", blocks_for(args.to.count), args);
}

void measure(KernelCall& call, ChannelArgs* args) {
  args->mean = doubles(call, args->rows.rows);
  args->rstd = doubles(call, args->rows.rows);
  args->spread = doubles(call, args->rows.rows);
  device_of(call).launch("channel_statistics", blocks_of_rows(args->rows.rows), *args);
}

// `count`: number of elements per variance; the stored variance is the unbiased one.
void update(KernelCall& call, const double* mean, const double* variance, int64_t count, int64_t batch) {
  auto one = [&](const char* name, const double* now, double factor) {
    if (call.op().param_index(name) < 0 || !call.has(name)) return;
    RunningArgs args{Device::view(call.tensor(name)), now, call.number("momentum"), factor, batch};
    device_of(call).launch("update_running", blocks_for(args.kept.count), args);
  };
  one("running_mean", mean, 1);
  one("running_var", variance, static_cast<double>(count) / static_cast<double>(count - 1));
}

// --- group norm ---

Result<Sizes> groups_of(KernelCall& call) {
  const Tensor& input = call.tensor("input");
  Sizes s;
  if (call.op().param_index("group") >= 0) {
    s = {call.integer("N"), call.integer("C"), call.integer("HxW"), call.integer("group")};
  } else {
    s = sizes_of(input);
    s.groups = call.op().param_index("num_groups") >= 0 ? call.integer("num_groups") : s.channels;
  }
  const bool divides = s.groups > 0 && s.channels % s.groups == 0;
  if (!divides || s.batch * s.channels * s.inner != input.elements())
    return call.fail("the groups do not divide the input");
  return s;
}

Status group_norm(KernelCall& call) {
  SG_ASSIGN(Sizes s, groups_of(call));
  ChannelArgs args = channel_args(call, s);
  measure(call, &args);
  normalize(call, args);
  store(call, 1, args.mean);
  store(call, 2, args.rstd);
  return ok_status();
}

const double* as_doubles(KernelCall& call, const Tensor& t) {
  Tensor out = backend_of(call).scratch(DType::f64, t.sizes());
  backend_of(call).copy(out, t);
  return out.as<double>();
}

Status group_norm_backward(KernelCall& call) {
  SG_ASSIGN(Sizes s, groups_of(call));
  ChannelArgs args = channel_args(call, s);
  args.gradient = Device::view(call.tensor("grad_out"));
  args.mean = const_cast<double*>(as_doubles(call, call.tensor("mean")));
  args.rstd = const_cast<double*>(as_doubles(call, call.tensor("rstd")));
  ChannelArgs sums = args;  // by entry and channel, without a center
  sums.rows = {s.batch * s.channels, 1, 0, s.inner, s.inner};
  sums.mean = nullptr;
  sums.sums = doubles(call, 2 * s.batch * s.channels);
  device_of(call).launch("channel_gradient_sums", blocks_of_rows(sums.rows.rows), sums);
  ChannelFinish finish;
  finish.sums = sums.sums;
  finish.mean = args.mean;
  finish.rstd = args.rstd;
  finish.weight = args.weight;
  finish.of_gradient = doubles(call, args.rows.rows);
  finish.of_normal = doubles(call, args.rows.rows);
  finish.batch = s.batch;
  finish.channels = s.channels;
  finish.groups = s.groups;
  device_of(call).launch("channel_finish_rows", blocks_for(args.rows.rows), finish);
  if (View to = wanted_view(call, 0); to.data) {
    args.to = to;
    args.of_gradient = finish.of_gradient;
    args.of_normal = finish.of_normal;
    device_of(call).launch("channel_normalize_backward", blocks_for(to.count), args);
  }
  finish.to_weight = wanted_view(call, 1);
  finish.to_bias = wanted_view(call, 2);
  device_of(call).launch("channel_finish_parameters", blocks_for(s.channels), finish);
  return ok_status();
}

// --- batch norm ---

void take_given(KernelCall& call, ChannelArgs* args, const char* mean, const char* variance) {
  args->mean = doubles(call, args->rows.rows);
  args->rstd = doubles(call, args->rows.rows);
  GivenArgs given{Device::view(call.tensor(mean)), Device::view(call.tensor(variance)), args->mean, args->rstd,
                  args->eps};
  device_of(call).launch("given_statistics", blocks_for(given.mean.count), given);
}

Status batch_norm_as(KernelCall& call, bool training) {
  const Sizes s = sizes_of(call.tensor("input"));
  ChannelArgs args = channel_args(call, s);
  auto has = [&](const char* name) { return call.op().param_index(name) >= 0 && call.has(name); };
  if (!training && (!has("running_mean") || !has("running_var")))
    return call.fail("running statistics are needed outside of training");
  if (training) measure(call, &args);
  else take_given(call, &args, "running_mean", "running_var");
  normalize(call, args);
  store(call, 1, args.mean);
  store(call, 2, args.rstd);
  if (training) update(call, args.mean, args.spread, s.batch * s.inner, 1);
  return ok_status();
}

Status batch_norm(KernelCall& call) { return batch_norm_as(call, call.flag("training")); }
Status batch_norm_eval(KernelCall& call) { return batch_norm_as(call, false); }

Status instance_norm(KernelCall& call) {
  if (!call.flag("use_input_stats")) return batch_norm_as(call, false);
  SG_ASSIGN(Sizes s, groups_of(call));
  ChannelArgs args = channel_args(call, s);
  measure(call, &args);
  normalize(call, args);
  if (s.batch > 0) update(call, args.mean, args.spread, s.inner, s.batch);
  return ok_status();
}

Status batch_norm_backward(KernelCall& call) {
  const Sizes s = sizes_of(call.tensor("input"));
  const bool train = call.flag("train");
  auto has = [&](const char* name) { return call.has(name); };
  if (!has(train ? "save_mean" : "running_mean") || !has(train ? "save_invstd" : "running_var"))
    return call.fail("the statistics of the forward op are missing");
  ChannelArgs args = channel_args(call, s);
  args.gradient = Device::view(call.tensor("grad_out"));
  if (train) {
    args.mean = const_cast<double*>(as_doubles(call, call.tensor("save_mean")));
    args.rstd = const_cast<double*>(as_doubles(call, call.tensor("save_invstd")));
  } else {
    take_given(call, &args, "running_mean", "running_var");
  }
  args.sums = doubles(call, 2 * s.channels);
  device_of(call).launch("channel_gradient_sums", blocks_of_rows(args.rows.rows), args);
  ChannelFinish finish;
  finish.sums = args.sums;
  finish.mean = args.mean;
  finish.rstd = args.rstd;
  finish.weight = args.weight;
  finish.channels = s.channels;
  if (View to = wanted_view(call, 0); to.data) {
    args.to = to;
    if (train) {
      args.of_gradient = finish.of_gradient = doubles(call, s.channels);
      args.of_normal = finish.of_normal = doubles(call, s.channels);
      device_of(call).launch("channel_finish_rows", blocks_for(s.channels), finish);
    }
    device_of(call).launch("channel_normalize_backward", blocks_for(to.count), args);
  }
  finish.to_weight = wanted_view(call, 1);
  finish.to_bias = wanted_view(call, 2);
  device_of(call).launch("channel_finish_parameters", blocks_for(s.channels), finish);
  return ok_status();
}

constexpr KernelRow kChannelRows[] = {
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

std::span<const KernelRow> channel_kernels() { return kChannelRows; }

}  // namespace sg::cuda
