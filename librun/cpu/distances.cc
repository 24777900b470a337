// Distances between rows (cdist, pdist) and weight norm, with their gradients. In double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "librun/cpu/kernels.h"
#include "librun/cpu/resample.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sign(double x) { return static_cast<double>(x > 0) - static_cast<double>(x < 0); }

double distance(const double* a, const double* b, int64_t n, double p) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    double d = std::fabs(a[i] - b[i]);
    if (p == kInfinity) sum = d > sum || d != d ? d : sum;
    else sum += p == 0 ? static_cast<double>(d != 0) : p == 1 ? d : p == 2 ? d * d : std::pow(d, p);
  }
  return p == 0 || p == 1 || p == kInfinity ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

// The slope of a distance by the difference in one column.
double slope(double d, double whole, double p) {
  if (p == 0 || whole == 0 || d == 0) return p == 1 ? sign(d) : 0;
  if (p == 1) return sign(d);
  if (p == 2) return d / whole;
  if (p == kInfinity) return std::fabs(d) == whole ? sign(d) : 0;
  return sign(d) * std::pow(std::fabs(d) / whole, p - 1);
}

// x1 [batch, n, width] and x2 [batch, m, width], broadcast and contiguous.
struct Sides {
  const double *a, *b;
  int64_t batch = 1, n, m, width;
};

Result<Sides> sides_of(KernelCall& call, const Tensor& shaped) {
  const Tensor &x1 = call.tensor("x1"), &x2 = call.tensor("x2");
  if (x1.rank < 2 || x2.rank < 2 || shaped.rank < 2 || x1.dim(-1) != x2.dim(-1))
    return call.fail("the rows are of different width");
  std::vector<int64_t> shape(shaped.sizes().begin(), shaped.sizes().end());
  Sides s{nullptr, nullptr, 1, x1.dim(-2), x2.dim(-2), x1.dim(-1)};
  for (size_t i = 0; i + 2 < shape.size(); ++i) s.batch *= shape[i];
  auto spread = [&](const Tensor& t) -> Result<const double*> {
    shape[shape.size() - 2] = t.dim(-2), shape[shape.size() - 1] = t.dim(-1);
    for (int i = 1; i <= t.rank; ++i) {
      bool fits = i <= shaped.rank &&
                  (t.dim(t.rank - i) == 1 || t.dim(t.rank - i) == shape[shape.size() - static_cast<size_t>(i)]);
      if (!fits) return call.fail("the batch sizes do not broadcast");
    }
    return contiguous_as(call, broadcast_to(t, shape), DType::f64).as<double>();
  };
  SG_ASSIGN(s.a, spread(x1));
  SG_ASSIGN(s.b, spread(x2));
  return s;
}

Status cdist(KernelCall& call) {
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  SG_ASSIGN(Sides s, sides_of(call, call.result()));
  if (out.dim(-2) != s.n || out.dim(-1) != s.m) return call.fail("the rows do not fit the result");
  double p = call.number("p");
  for_rows(call, s.batch * s.n, s.m * s.width, [&](int64_t row, int) {
    const double* others = s.b + row / s.n * s.m * s.width;
    for (int64_t k = 0; k < s.m; ++k)
      out.as<double>()[row * s.m + k] = distance(s.a + row * s.width, others + k * s.width, s.width, p);
  });
  copy(call, call.result(), out);
  return ok_status();
}

Status cdist_backward(KernelCall& call) {
  const Tensor& grad = call.tensor("grad_output");
  SG_ASSIGN(Sides s, sides_of(call, call.result()));
  if (call.result().dim(-2) != s.n || grad.elements() != s.batch * s.n * s.m)
    return call.fail("the rows do not fit the gradient");
  SG_TRY(expect_shape(call, "cdist", call.tensor("cdist"), grad.sizes()));
  const auto* g = contiguous_as(call, grad, DType::f64).as<double>();
  const auto* whole = contiguous_as(call, call.tensor("cdist"), DType::f64).as<double>();
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  fill(call, out, Scalar::integer(0));
  double p = call.number("p");
  for_rows(call, s.batch * s.n, s.m * s.width, [&](int64_t row, int) {
    const double *a = s.a + row * s.width, *others = s.b + row / s.n * s.m * s.width;
    for (int64_t k = 0; k < s.m; ++k)
      for (int64_t i = 0; i < s.width; ++i)
        out.as<double>()[row * s.width + i] +=
            g[row * s.m + k] * slope(a[i] - others[k * s.width + i], whole[row * s.m + k], p);
  });
  copy(call, call.result(), out);
  return ok_status();
}

// Pairs of rows i < j, in order.
int64_t pair_start(int64_t i, int64_t n) { return i * n - i * (i + 1) / 2; }

Status pdist(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  int64_t n = self.dim(0), width = self.dim(1);
  if (call.result().elements() != n * (n - 1) / 2) return call.fail("the rows do not fit the result");
  const auto* x = contiguous_as(call, self, DType::f64).as<double>();
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  double p = call.number("p");
  for_rows(call, n, n * width, [&](int64_t i, int) {
    for (int64_t j = i + 1; j < n; ++j)
      out.as<double>()[pair_start(i, n) + j - i - 1] = distance(x + i * width, x + j * width, width, p);
  });
  copy(call, call.result(), out);
  return ok_status();
}

Status pdist_backward(KernelCall& call) {
  const Tensor &self = call.tensor("self"), &grad = call.tensor("grad_output");
  int64_t n = self.dim(0), width = self.dim(1);
  if (grad.elements() != n * (n - 1) / 2) return call.fail("the rows do not fit the gradient");
  SG_TRY(expect_shape(call, "pdist", call.tensor("pdist"), grad.sizes()));
  const auto* x = contiguous_as(call, self, DType::f64).as<double>();
  const auto* g = contiguous_as(call, grad, DType::f64).as<double>();
  const auto* whole = contiguous_as(call, call.tensor("pdist"), DType::f64).as<double>();
  Tensor out = call.scratch().tensor(DType::f64, self.sizes());
  fill(call, out, Scalar::integer(0));
  double p = call.number("p");
  for_rows(call, n, n * width, [&](int64_t i, int) {
    for (int64_t j = 0; j < n; ++j) {
      if (i == j) continue;
      int64_t pair = pair_start(std::min(i, j), n) + std::max(i, j) - std::min(i, j) - 1;
      for (int64_t k = 0; k < width; ++k)
        out.as<double>()[i * width + k] += g[pair] * slope(x[i * width + k] - x[j * width + k], whole[pair], p);
    }
  });
  copy(call, call.result(), out);
  return ok_status();
}

// --- weight norm: w = g v / |v|, the norm over all axes but one ---

Tensor axis_first(const Tensor& t, int64_t dim) {
  Tensor out = t;
  for (int axis = wrap_axis(dim, t.rank); axis > 0; --axis) out = swap_axes(out, axis, axis - 1);
  return out;
}

const double* line_doubles(KernelCall& call, const Tensor& t) {
  return contiguous_as(call, axis_first(t, call.integer("dim")), DType::f64).as<double>();
}

void store_lines(KernelCall& call, const Tensor& out, const Tensor& lines) {
  Tensor target = axis_first(out, call.integer("dim"));
  copy(call, target, make_tensor(lines.data, DType::f64, target.sizes()));
}

Status weight_norm(KernelCall& call) {
  const Tensor &v = call.tensor("v"), &g = call.tensor("g");
  int64_t count = v.dim(static_cast<int>(wrap_axis(call.integer("dim"), v.rank))),
          length = count == 0 ? 0 : v.elements() / count;
  if (g.elements() != count || call.result(1).elements() != count) return call.fail("needs one scale a row");
  const double *x = line_doubles(call, v), *scale = contiguous_as(call, g, DType::f64).as<double>();
  Tensor out = call.scratch().tensor(DType::f64, v.sizes()),
         norms = call.scratch().tensor(DType::f64, call.result(1).sizes());
  for_rows(call, count, length, [&](int64_t row, int) {
    const double* from = x + row * length;
    double norm = std::sqrt(row_dot(from, from, length));
    norms.as<double>()[row] = norm;
    for (int64_t i = 0; i < length; ++i) out.as<double>()[row * length + i] = from[i] * (scale[row] / norm);
  });
  store_lines(call, call.result(0), out);
  copy(call, call.result(1), norms);
  return ok_status();
}

Status weight_norm_backward(KernelCall& call) {
  const Tensor &v = call.tensor("saved_v"), &g = call.tensor("saved_g"), &norm = call.tensor("saved_norms");
  int64_t count = v.dim(static_cast<int>(wrap_axis(call.integer("dim"), v.rank))),
          length = count == 0 ? 0 : v.elements() / count;
  SG_TRY(expect_shape(call, "grad_w", call.tensor("grad_w"), v.sizes()));
  if (g.elements() != count || norm.elements() != count) return call.fail("needs one scale and one norm a row");
  const double *x = line_doubles(call, v), *grad = line_doubles(call, call.tensor("grad_w"));
  const double *scale = contiguous_as(call, g, DType::f64).as<double>(),
               *norms = contiguous_as(call, norm, DType::f64).as<double>();
  Tensor out = call.scratch().tensor(DType::f64, v.sizes()),
         of_scale = call.scratch().tensor(DType::f64, call.result(1).sizes());
  for_rows(call, count, length, [&](int64_t row, int) {
    const double *from = x + row * length, *to = grad + row * length;
    double dot = row_dot(from, to, length), n = norms[row];
    of_scale.as<double>()[row] = dot / n;
    for (int64_t i = 0; i < length; ++i)
      out.as<double>()[row * length + i] = scale[row] / n * (to[i] - from[i] * (dot / (n * n)));
  });
  store_lines(call, call.result(0), out);
  copy(call, call.result(1), of_scale);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten._cdist_forward.default", cdist},
    {"aten._cdist_backward.default", cdist_backward},
    {"aten._pdist_forward.default", pdist},
    {"aten._pdist_backward.default", pdist_backward},
    {"aten._weight_norm_interface.default", weight_norm},
    {"aten._weight_norm_interface_backward.default", weight_norm_backward},
};

}  // namespace

std::span<const KernelRow> distance_kernels() { return kRows; }

}  // namespace sg::cpu
