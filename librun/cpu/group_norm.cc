#include "librun/cpu/group_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "librun/cpu/channel_norm.h"
#include "librun/cpu/channel_vectors.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

Status checked(KernelCall& call, const NormGroups& g, const Tensor& input) {
  bool divides = call.op().param_index("C") < 0 || (g.groups > 0 && call.integer("C") % g.groups == 0);
  if (divides && g.rows() * g.length() == input.elements()) return ok_status();
  return call.fail("the groups do not divide the input");
}

template <class C>
void group_norm_as(KernelCall& call, const NormGroups& g) {
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
      normalize_row(from + at, mean, rstd, weight ? weight[channel] : 1.0, bias ? bias[channel] : 0.0, to + at,
                    g.inner);
    }
    y.done(row, thread);
    if (means.data()) means.data()[row] = mean;
    if (rstds.data()) rstds.data()[row] = rstd;
  });
  out.store(call), means.store(), rstds.store();
}

bool is_by_vectors(const NormGroups& g, const Tensor& input, std::initializer_list<const Tensor*> others) {
  return has_inner_channels(input, others) && input.dim(0) == g.batch && input.dim(1) == g.groups * g.channels;
}

// Sums over groups go along one channel after the other, so that their channels are moved out, for some groups at once.
template <class C>
class GroupMoments {
 public:
  GroupMoments(KernelCall& call, const NormGroups& g, const Tensor& x)
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

  const NormGroups& g_;
  const Tensor& x_;
  int64_t bundle_;
  C* lines_;
};

// Numbers of the groups of each entry, by channel.
ByChannel by_channel(KernelCall& call, const NormGroups& g, const double* of_groups) {
  auto* to = call.scratch().take<double>(g.rows() * g.channels);
  for (int64_t i = 0; i < g.rows() * g.channels; ++i) to[i] = of_groups[i / g.channels];
  return {to, g.groups * g.channels};
}

ChannelVectors vectors_of(const NormGroups& g) { return {g.batch, g.inner, g.groups * g.channels}; }

void group_norm_by_vectors(KernelCall& call, const NormGroups& g) {
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

// `sums`: for each channel of each entry, those of grad and of grad * (x - mean).
void group_parameter_gradients(KernelCall& call, const NormGroups& g, const double* rstds, const double* sums) {
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
GroupSlopes slopes_of(const NormGroups& g, const double* sums, const double* weight, double rstd) {
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
  GroupNormGradients(KernelCall& call, const NormGroups& g)
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
        sums[2 * c + 1] = centered_dot_of_row(grad + c * g_.inner, x + c * g_.inner, means_[row], g_.inner);
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
      input_gradient_of_row(grad + c * g_.inner, x + c * g_.inner,
                            {means_[row], rstd, weight ? weight[c] : 1.0, by.shift, by.slope}, to + c * g_.inner,
                            g_.inner);
  }

  KernelCall& call_;
  const NormGroups& g_;
  RowReader<C> grad_, x_;
  const double *means_, *rstds_, *weight_;
  double* sums_;
};

void group_norm_gradients_by_vectors(KernelCall& call, const NormGroups& g) {
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
  NormGroups g = norm_groups_of(call);
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

constexpr KernelRow kRows[] = {
    {"aten.native_group_norm.default", group_norm},
    {"aten.native_group_norm_backward.default", group_norm_backward},
    {"aten.group_norm.default", group_norm},
};

}  // namespace

NormGroups norm_groups_of(KernelCall& call) {
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

Status group_norm(KernelCall& call) {
  NormGroups g = norm_groups_of(call);
  SG_TRY(checked(call, g, call.tensor("input")));
  if (is_by_vectors(g, call.tensor("input"), {&call.result(0)})) return group_norm_by_vectors(call, g), ok_status();
  visit_compute(call.tensor("input").dtype, [&]<class C>() { group_norm_as<C>(call, g); });
  return ok_status();
}

std::span<const KernelRow> group_norm_kernels() { return kRows; }

}  // namespace sg::cpu
