// Variances, norms and logsumexp: reductions that build on another one.
#include <cmath>

#include "librun/cpu/kernels.h"
#include "librun/cpu/log_sum.h"
#include "librun/cpu/reduce.h"
#include "librun/cpu/reduce_ops.h"
#include "librun/cpu/side_lines.h"

namespace sg::cpu {
namespace {

// --- variance ---

double correction(KernelCall& call) {
  if (call.op().param_index("unbiased") >= 0) return call.flag("unbiased") ? 1 : 0;
  return call.has("correction") ? call.number("correction") : 1;
}

// Mean and sum of squared deviations, by output number.
struct Moments {
  double *mean, *squares;
};

template <class T>
Moments moments_of(KernelCall& call, const Tensor& self) {
  ReducePlan plan = plan_reduction(self, call.result(0), reduced_axes(call, self));
  Moments m{call.scratch().take<double>(plan.outputs + 1), call.scratch().take<double>(plan.outputs + 1)};
  reduce<T>(call, plan, self, Sum<double>{}, nullptr,
            [&](double sum, int64_t output, int64_t) { m.mean[output] = sum / static_cast<double>(plan.count); });
  reduce<T>(call, plan, self, SquareDistance{}, m.mean,
            [&](double sum, int64_t output, int64_t) { m.squares[output] = sum; });
  return m;
}

// The real or imaginary parts as a tensor.
Tensor part_of(const Tensor& complex, int which) {
  Tensor part = complex;
  part.dtype = DType::f64;
  part.data += which * 8;
  for (int i = 0; i < part.rank; ++i) part.stride[static_cast<size_t>(i)] *= 2;
  return part;
}

// Calls fn(output, offset) for every output of a reduction of `self` to `out`.
template <class Fn>
void each_output(const Tensor& self, const Tensor& out, const std::vector<int>& axes, const Fn& fn) {
  ReducePlan plan = plan_reduction(self, out, axes);
  int64_t size = plan.kept.back().size;
  for (int64_t i = 0; i < plan.outputs; ++i)
    fn(i, outer_offset(plan.kept, i / size).out + i % size * plan.kept.back().out);
}

// Results: the variance or its square root, and the mean if the op returns it.
Status variance(KernelCall& call, bool root) {
  Tensor self = call.tensor("self");
  std::vector<int> axes = reduced_axes(call, self);
  bool complex = is_complex(self.dtype);
  Moments real, imaginary{};
  if (complex) {
    self = contiguous_as(call, self, DType::c128);
    real = moments_of<double>(call, part_of(self, 0));
    imaginary = moments_of<double>(call, part_of(self, 1));
  } else {
    visit_floating(self.dtype, [&]<class T>() { real = moments_of<T>(call, self); });
  }
  auto count = static_cast<double>(plan_reduction(self, call.result(0), axes).count);
  double divisor = std::max(0.0, count - correction(call));
  const Tensor& out = call.result(0);
  auto put = put_as<double>(out.dtype);
  each_output(self, out, axes, [&](int64_t i, int64_t offset) {
    double value = (real.squares[i] + (complex ? imaginary.squares[i] : 0.0)) / divisor;
    put(out.data, offset, root ? std::sqrt(value) : value);
  });
  if (call.result_count() < 2) return ok_status();
  const Tensor& mean = call.result(1);
  auto put_mean = put_as<C128>(mean.dtype);
  each_output(self, mean, axes, [&](int64_t i, int64_t offset) {
    put_mean(mean.data, offset, C128(real.mean[i], complex ? imaginary.mean[i] : 0.0));
  });
  return ok_status();
}

Status var(KernelCall& call) { return variance(call, false); }
Status standard_deviation(KernelCall& call) { return variance(call, true); }

// --- norms ---

template <class T, class Op, class Finish>
void norm_with(KernelCall& call, const Tensor& self, const Op& op, const Finish& finish) {
  const Tensor& out = call.result();
  auto put = put_as<double>(out.dtype);
  reduce<T>(call, plan_reduction(self, out, reduced_axes(call, self)), self, op, nullptr,
            [&](auto acc, int64_t, int64_t offset) { put(out.data, offset, finish(static_cast<double>(acc))); });
}

Status norm_of(KernelCall& call, double p) {
  Tensor given = call.tensor("self");
  if (call.op().param_index("dtype") >= 0 && call.has("dtype"))
    given = contiguous_as(call, given, call.stored("dtype", given.dtype));
  if (!is_floating(given.dtype) && !is_complex(given.dtype)) given = contiguous_as(call, given, DType::f32);
  auto same = [](double x) { return x; };
  visit_reducible(call, given, [&]<class T>(const Tensor& self) {
    if constexpr (!std::is_integral_v<T>) {
      if (p == 0) return norm_with<T>(call, self, NonZeros{}, same);
      if (std::isinf(p) && p > 0) return norm_with<T>(call, self, ExtremeSize<true>{}, same);
      if (std::isinf(p)) return norm_with<T>(call, self, ExtremeSize<false>{}, same);
      if constexpr (!is_complex_type<T>)
        if (p == 2) return norm_with<T>(call, self, SquareDistance{}, [](double x) { return std::sqrt(x); });
      norm_with<T>(call, self, Power{p}, [=](double x) {
        return p == 2 ? std::sqrt(x) : p == 1 ? x : std::pow(x, 1 / p);
      });
    }
  });
  return ok_status();
}

Status norm(KernelCall& call) { return norm_of(call, call.has("p") ? call.number("p") : 2); }
Status vector_norm(KernelCall& call) { return norm_of(call, call.number("ord")); }

// --- logsumexp ---

template <class C>
void logsumexp_of_lines(KernelCall& call, const LineTiles& tiles, const Tensor& self) {
  const SideLines<C> lines(call, tiles);
  const Tensor& out = call.result();
  const auto put = put_as<double>(out.dtype);
  tiles.each(call, [&](int64_t tile, int thread) {
    C top[kSideLines];
    double logs[kSideLines];
    log_sums_of_exp(lines.read(self, tile, thread), tiles.length, top, logs);
    for (int64_t l = 0; l < tiles.lines(tile); ++l)
      put(out.data, tiles.first_line(tile) + l, std::isinf(top[l]) ? static_cast<double>(top[l]) : logs[l]);
  });
}

Status logsumexp(KernelCall& call) {
  Tensor self = call.tensor("self");
  if (is_complex(self.dtype)) return call.fail("logsumexp of complex numbers is not computed");
  if (!is_floating(self.dtype)) self = contiguous_as(call, self, DType::f32);
  const Tensor& out = call.result();
  const std::vector<int> axes = reduced_axes(call, self);
  const auto tiles = axes.size() == 1 && out.is_contiguous() ? LineTiles::along(self, axes[0]) : std::nullopt;
  if (tiles) {
    visit_compute(self.dtype, [&]<class C>() { logsumexp_of_lines<C>(call, *tiles, self); });
    return ok_status();
  }
  visit_floating(self.dtype, [&]<class T>() {
    ReducePlan plan = plan_reduction(self, out, axes);
    auto* top = call.scratch().take<double>(plan.outputs + 1);
    reduce<T>(call, plan, self, Extreme<Compute<T>, true>{}, nullptr, [&](Compute<T> most, int64_t output, int64_t) {
      top[output] = std::isinf(most) ? 0.0 : static_cast<double>(most);
    });
    auto put = put_as<double>(out.dtype);
    reduce<T>(call, plan, self, ExpDistance{}, top,
              [&](double sum, int64_t output, int64_t offset) { put(out.data, offset, std::log(sum) + top[output]); });
  });
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.var.default", var},
    {"aten.var.dim", var},
    {"aten.var.correction", var},
    {"aten.std.default", standard_deviation},
    {"aten.std.dim", standard_deviation},
    {"aten.std.correction", standard_deviation},
    {"aten.var_mean.correction", var},
    {"aten.norm.ScalarOpt_dim", norm},
    {"aten.norm.Scalar", norm},
    {"aten.linalg_vector_norm.default", vector_norm},
    {"aten.logsumexp.default", logsumexp},
};

}  // namespace

std::span<const KernelRow> reduce_moments_kernels() { return kRows; }

}  // namespace sg::cpu
