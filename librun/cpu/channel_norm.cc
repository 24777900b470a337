#include "librun/cpu/channel_norm.h"

#include <algorithm>

#include "librun/cpu/isa.h"
#include "librun/cpu/lanes.h"
#include "librun/element.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
const double* optional_doubles(KernelCall& call, std::string_view name) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return nullptr;
  return contiguous_as(call, call.tensor(name), DType::f64).as<double>();
}

bool has_inner_channels(const Tensor& input, std::initializer_list<const Tensor*> others) {
  auto fits = [&](const Tensor* t) {
    return t->is_none() || (t->dtype == input.dtype && !t->conjugate && same_shape(*t, input));
  };
  return input.rank > 2 && is_floating(input.dtype) && is_runnable(input.dtype) && std::ranges::all_of(others, fits) &&
         input.elements() > 0 && inner_channels(input, input.rank - 2) >= 0;
}

const double* numbers_or(KernelCall& call, const double* given, int64_t n, double otherwise) {
  if (given) return given;
  auto* same = call.scratch().take<double>(n);
  std::fill_n(same, n, otherwise);
  return same;
}

template <class C>
SG_CLONES void normalize_row(const C* x, double mean, double rstd, double scale, double shift, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>((static_cast<double>(x[i]) - mean) * rstd * scale + shift);
}

template <class C>
SG_CLONES double centered_dot_of_row(const C* grad, const C* x, double center, int64_t n) {
  return sum_lanes(n, [=](int64_t i) { return static_cast<double>(grad[i]) * (static_cast<double>(x[i]) - center); });
}

template <class C>
SG_CLONES void input_gradient_of_row(const C* grad, const C* x, ChannelGradient by, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double centered = static_cast<double>(x[i]) - by.mean;
    to[i] = static_cast<C>(by.rstd * (static_cast<double>(grad[i]) * by.scale - by.shift - centered * by.slope));
  }
}

#define SG_INSTANTIATE(C)                                                                \
  template void normalize_row<C>(const C*, double, double, double, double, C*, int64_t); \
  template double centered_dot_of_row<C>(const C*, const C*, double, int64_t);           \
  template void input_gradient_of_row<C>(const C*, const C*, ChannelGradient, C*, int64_t);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
