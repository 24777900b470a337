// Distances between rows (cdist, pdist) and weight norm, with their gradients. In double.
#include <algorithm>
#include <array>
#include <cmath>

#include "librun/any_device/resample.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/distances.h"
#include "librun/work/run.h"

namespace sg::cpu {
namespace {

int64_t grain_of(int64_t length) { return std::max<int64_t>(kPieceElements / std::max<int64_t>(length, 1), 1); }

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
  Tensor out = workspace(call, DType::f64, call.result().sizes());
  SG_ASSIGN(Sides s, sides_of(call, call.result()));
  if (out.dim(-2) != s.n || out.dim(-1) != s.m) return call.fail("the rows do not fit the result");
  for_each(call, s.batch * s.n * s.m, grain_of(s.width),
           work::CrossDistance{{call.number("p")}, s.a, s.b, s.n, s.m, s.width, out.as<double>()});
  copy(call, call.result(), out);
  return ok_status();
}

// Adds to the gradient of row a of `width` what its distances `whole` to the m rows of b give; the norm is a template
// argument, so loops vectorize. Equivalent to work::CrossDistanceSlope.
template <int p>
SG_CLONES void add_slopes(const double* a, const double* b, const double* grad, const double* whole, int64_t m,
                          int64_t width, double* to) {
  for (int64_t k = 0; k < m; ++k, b += width)
    for (int64_t i = 0; i < width; ++i) to[i] += grad[k] * work::Norm{p}.slope(a[i] - b[i], whole[k]);
}

template <int p>
void slopes_of_rows(KernelCall& call, const Sides& s, const double* grad, const double* whole, double* to) {
  for_rows(call, s.batch * s.n, s.m * s.width, [&](int64_t row, int) {
    std::fill_n(to + row * s.width, s.width, 0.0);
    add_slopes<p>(s.a + row * s.width, s.b + row / s.n * s.m * s.width, grad + row * s.m, whole + row * s.m, s.m,
                  s.width, to + row * s.width);
  });
}

Status cdist_backward(KernelCall& call) {
  const Tensor& grad = call.tensor("grad_output");
  SG_ASSIGN(Sides s, sides_of(call, call.result()));
  if (call.result().dim(-2) != s.n || grad.elements() != s.batch * s.n * s.m)
    return call.fail("the rows do not fit the gradient");
  SG_TRY(expect_shape(call, "cdist", call.tensor("cdist"), grad.sizes()));
  const auto* g = contiguous_as(call, grad, DType::f64).as<double>();
  const auto* whole = contiguous_as(call, call.tensor("cdist"), DType::f64).as<double>();
  Tensor out = workspace(call, DType::f64, call.result().sizes());
  const double p = call.number("p");
  const bool is_single = call.tensor("cdist").dtype == DType::f32;
  if (!on_device(call) && p == 1) slopes_of_rows<1>(call, s, g, whole, out.as<double>());
  else if (!on_device(call) && p == 2) slopes_of_rows<2>(call, s, g, whole, out.as<double>());
  else
    for_each(call, out.elements(), grain_of(s.m),
             work::CrossDistanceSlope{{p, is_single}, s.a, s.b, g, whole, s.n, s.m, s.width, out.as<double>()});
  copy(call, call.result(), out);
  return ok_status();
}

Status pdist(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  int64_t n = self.dim(0), width = self.dim(1);
  if (call.result().elements() != n * (n - 1) / 2) return call.fail("the rows do not fit the result");
  const auto* x = contiguous_as(call, self, DType::f64).as<double>();
  Tensor out = workspace(call, DType::f64, call.result().sizes());
  for_each(call, n, grain_of(n * width), work::PairDistances{{call.number("p")}, x, n, width, out.as<double>()});
  copy(call, call.result(), out);
  return ok_status();
}

// A row's pairs with later rows lie together, those with earlier ones do not. Equivalent to work::PairDistanceSlope.
template <int p>
void slopes_of_pairs(KernelCall& call, const double* x, const double* grad, const double* whole, int64_t n,
                     int64_t width, double* to) {
  for_rows(call, n, n * width, [&](int64_t row, int) {
    const double* a = x + row * width;
    std::fill_n(to + row * width, width, 0.0);
    for (int64_t k = 0; k < row; ++k) {
      const int64_t pair = work::pair_start(k, n) + row - k - 1;
      add_slopes<p>(a, x + k * width, grad + pair, whole + pair, 1, width, to + row * width);
    }
    const int64_t first = work::pair_start(row, n);
    add_slopes<p>(a, a + width, grad + first, whole + first, n - 1 - row, width, to + row * width);
  });
}

Status pdist_backward(KernelCall& call) {
  const Tensor &self = call.tensor("self"), &grad = call.tensor("grad_output");
  int64_t n = self.dim(0), width = self.dim(1);
  if (grad.elements() != n * (n - 1) / 2) return call.fail("the rows do not fit the gradient");
  SG_TRY(expect_shape(call, "pdist", call.tensor("pdist"), grad.sizes()));
  const auto* x = contiguous_as(call, self, DType::f64).as<double>();
  const auto* g = contiguous_as(call, grad, DType::f64).as<double>();
  const auto* whole = contiguous_as(call, call.tensor("pdist"), DType::f64).as<double>();
  Tensor out = workspace(call, DType::f64, self.sizes());
  const double p = call.number("p");
  const bool is_single = call.tensor("pdist").dtype == DType::f32;
  if (!on_device(call) && p == 1) slopes_of_pairs<1>(call, x, g, whole, n, width, out.as<double>());
  else if (!on_device(call) && p == 2) slopes_of_pairs<2>(call, x, g, whole, n, width, out.as<double>());
  else
    for_each(call, out.elements(), grain_of(n),
             work::PairDistanceSlope{{p, is_single}, x, g, whole, n, width, out.as<double>()});
  copy(call, call.result(), out);
  return ok_status();
}

// --- weight norm: w = g v / |v|, with the norm over all axes but one ---

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

// [rows]: the sum of x * y along each row of [rows, length], on the device.
double* row_dots(KernelCall& call, const double* x, const double* y, int64_t count, int64_t length) {
  Tensor out = workspace(call, DType::f64, std::array{count});
  backend_of(call.context())->row_dots(out, x, y, length);
  return out.as<double>();
}

template <class C>
SG_CLONES void scale_line(const C* x, double factor, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(static_cast<double>(x[i]) * factor);
}

template <class C>
SG_CLONES void slope_line(const C* x, const C* grad, double factor, double share, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = static_cast<C>(factor * (static_cast<double>(grad[i]) - static_cast<double>(x[i]) * share));
}

// On the CPU, a line at a time, with the same bits as work::RowNorm and its kin. `norms` are returned.
template <class C>
void norm_lines(KernelCall& call, const double* scale, int64_t count, int64_t length, double* norms) {
  const Tensor lines = contiguous(call, axis_first(call.tensor("v"), call.integer("dim"))),
               target = axis_first(call.result(0), call.integer("dim"));
  const Tensor out = target.is_contiguous() ? target : call.scratch().tensor(target.dtype, target.sizes());
  const RowReader<C> x(call, lines, length);
  const RowWriter<C> y(call, out, length);
  for_rows(call, count, length, [&](int64_t row, int thread) {
    const C* from = x.row(row, thread);
    norms[row] = std::sqrt(row_dot(from, from, length));
    scale_line(from, scale[row] / norms[row], y.row(row, thread), length);
    y.done(row, thread);
  });
  if (out.data != target.data) copy(call, target, out);
}

template <class C>
void slope_lines(KernelCall& call, const double* scale, const double* norms, int64_t count, int64_t length,
                 double* of_scale) {
  const auto lines = [&](std::string_view name) {
    return contiguous(call, axis_first(call.tensor(name), call.integer("dim")));
  };
  const Tensor target = axis_first(call.result(0), call.integer("dim"));
  const Tensor out = target.is_contiguous() ? target : call.scratch().tensor(target.dtype, target.sizes());
  const RowReader<C> x(call, lines("saved_v"), length), grad(call, lines("grad_w"), length);
  const RowWriter<C> y(call, out, length);
  for_rows(call, count, length, [&](int64_t row, int thread) {
    const C *from = x.row(row, thread), *slope = grad.row(row, thread);
    const double norm = norms[row], dot = row_dot(from, slope, length);
    of_scale[row] = dot / norm;
    slope_line(from, slope, scale[row] / norm, dot / (norm * norm), y.row(row, thread), length);
    y.done(row, thread);
  });
  if (out.data != target.data) copy(call, target, out);
}

Status weight_norm(KernelCall& call) {
  const Tensor &v = call.tensor("v"), &g = call.tensor("g");
  int64_t count = v.dim(static_cast<int>(wrap_axis(call.integer("dim"), v.rank))),
          length = count == 0 ? 0 : v.elements() / count;
  if (g.elements() != count || call.result(1).elements() != count) return call.fail("needs one scale a row");
  const auto* scale = contiguous_as(call, g, DType::f64).as<double>();
  if (!on_device(call)) {
    const Tensor norms = call.scratch().tensor(DType::f64, call.result(1).sizes());
    visit_compute(v.dtype, [&]<class C>() { norm_lines<C>(call, scale, count, length, norms.as<double>()); });
    copy(call, call.result(1), norms);
    return ok_status();
  }
  const double* x = line_doubles(call, v);
  Tensor out = workspace(call, DType::f64, v.sizes());
  double* norms = row_dots(call, x, x, count, length);
  auto* factors = workspace(call, DType::f64, std::array{count}).as<double>();
  for_each(call, count, kPieceElements, work::RowNorm{scale, norms, factors});
  for_each_in_rows(call, count, length, work::ScaleRows{x, factors, length, out.as<double>()});
  store_lines(call, call.result(0), out);
  copy(call, call.result(1), make_tensor(reinterpret_cast<std::byte*>(norms), DType::f64, call.result(1).sizes()));
  return ok_status();
}

Status weight_norm_backward(KernelCall& call) {
  const Tensor &v = call.tensor("saved_v"), &g = call.tensor("saved_g"), &norm = call.tensor("saved_norms");
  int64_t count = v.dim(static_cast<int>(wrap_axis(call.integer("dim"), v.rank))),
          length = count == 0 ? 0 : v.elements() / count;
  SG_TRY(expect_shape(call, "grad_w", call.tensor("grad_w"), v.sizes()));
  if (g.elements() != count || norm.elements() != count) return call.fail("needs one scale and one norm per row");
  if (length == 0) return fill(call, call.result(1), Scalar::integer(0)), ok_status();
  const double *scale = contiguous_as(call, g, DType::f64).as<double>(),
               *norms = contiguous_as(call, norm, DType::f64).as<double>();
  const Tensor of_scale = workspace(call, DType::f64, call.result(1).sizes());
  if (!on_device(call)) {
    visit_compute(v.dtype,
                  [&]<class C>() { slope_lines<C>(call, scale, norms, count, length, of_scale.as<double>()); });
    copy(call, call.result(1), of_scale);
    return ok_status();
  }
  const double *x = line_doubles(call, v), *grad = line_doubles(call, call.tensor("grad_w"));
  Tensor out = workspace(call, DType::f64, v.sizes());
  const double* dots = row_dots(call, x, grad, count, length);
  Tensor factors = workspace(call, DType::f64, std::array{count}),
         shares = workspace(call, DType::f64, std::array{count});
  for_each(call, count, kPieceElements,
           work::RowSlope{dots, scale, norms, of_scale.as<double>(), factors.as<double>(), shares.as<double>()});
  for_each_in_rows(call, count, length,
                   work::NormedSlope{x, grad, factors.as<double>(), shares.as<double>(), length, out.as<double>()});
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
