// Draws whose distribution has a shape that tensors give, element by element, and the slopes of those that a gradient
// goes through. One uniform number a draw, of 53 binary digits.
#include <algorithm>
#include <limits>

#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/random_draw.h"
#include "librun/element.h"
#include "librun/work/quantile.h"

namespace sg::cpu {
namespace {

constexpr int64_t kPiece = 64;  // elements: each takes a microsecond or several

// An operand as doubles, broadcast to the result.
const double* doubles(KernelCall& call, std::string_view name) {
  return contiguous_as(call, broadcast_to(call.tensor(name), call.result().sizes()), DType::f64).as<double>();
}

// Elements are computed in double, and rounded once.
template <class Fn>
Tensor computed(KernelCall& call, const Fn& fn) {
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  call.team().parallel_for(out.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out.as<double>()[i] = fn(i);
  });
  return out;
}

// fn(uniform number, element)
template <class Fn>
Tensor drawn(KernelCall& call, const Fn& fn) {
  const RandomKey key = random_key(call);
  const RandomPlaces places(call.random, call.result());
  return computed(call, [&](int64_t i) { return fn(uniform(key, places(i), 53), i); });
}

Status give(KernelCall& call, const Tensor& values) { return copy(call, call.result(), values), ok_status(); }

// As PyTorch has it: a draw above 0 that the type cannot hold becomes its least normal number, and logarithms stay
// finite.
double least(DType dtype) {
  if (dtype == DType::f64) return std::numeric_limits<double>::min();
  return dtype == DType::f16 ? 0x1p-14 : static_cast<double>(std::numeric_limits<float>::min());
}

Tensor gammas(KernelCall& call) {
  const double *shape = doubles(call, "self"), floor = least(call.result().dtype);
  return drawn(call, [=](double u, int64_t i) {
    const double x = math::gamma_quantile(shape[i], u);
    return x < floor ? floor : x;
  });
}

Status standard_gamma(KernelCall& call) { return give(call, gammas(call)); }

Status sample_dirichlet(KernelCall& call) {
  const Tensor values = gammas(call);
  const int64_t length = values.rank == 0 ? 1 : values.dim(-1);
  const double floor = least(call.result().dtype), ceiling = 1 - std::numeric_limits<double>::epsilon() / 2;
  for (int64_t first = 0; length > 0 && first < values.elements(); first += length) {
    double* row = values.as<double>() + first;
    double sum = 0;
    for (int64_t k = 0; k < length; ++k) sum += row[k];
    for (int64_t k = 0; k < length; ++k) row[k] = std::clamp(row[k] / sum, floor, ceiling);
  }
  return give(call, values);
}

Status standard_gamma_slope(KernelCall& call) {
  const double *shape = doubles(call, "self"), *x = doubles(call, "output");
  return give(call, computed(call, [=](int64_t i) { return math::gamma_slope(shape[i], x[i]); }));
}

Status dirichlet_slope(KernelCall& call) {
  const double *x = doubles(call, "x"), *a = doubles(call, "alpha"), *total = doubles(call, "total");
  return give(call, computed(call, [=](int64_t i) { return math::dirichlet_slope(x[i], a[i], total[i]); }));
}

Status poisson(KernelCall& call) {
  const double* rate = doubles(call, "self");
  for (int64_t i = 0; i < call.result().elements(); ++i)
    if (!(rate[i] >= 0)) return call.fail("a rate is negative or NaN");
  return give(call, drawn(call, [=](double u, int64_t i) { return math::poisson_quantile(rate[i], u); }));
}

Status binomial(KernelCall& call) {
  const double *count = doubles(call, "count"), *p = doubles(call, "prob");
  return give(call, drawn(call, [=](double u, int64_t i) { return math::binomial_quantile(count[i], p[i], u); }));
}

constexpr KernelRow kShapedRows[] = {
    {"aten._standard_gamma.default", standard_gamma},
    {"aten._standard_gamma_grad.default", standard_gamma_slope},
    {"aten._sample_dirichlet.default", sample_dirichlet},
    {"aten._dirichlet_grad.default", dirichlet_slope},
    {"aten.poisson.default", poisson},
    {"aten.binomial.default", binomial},
};

}  // namespace

std::span<const KernelRow> shaped_random_kernels() { return kShapedRows; }

}  // namespace sg::cpu
