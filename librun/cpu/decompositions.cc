// Cholesky, LU and QR, and their direct applications: determinants and inverses. In double, one matrix per thread.
#include <cmath>

#include "librun/cpu/kernels.h"
#include "librun/cpu/linear/calls.h"
#include "librun/cpu/linear/factor.h"
#include "librun/cpu/linear/reflect.h"

namespace sg::cpu {
namespace {

using namespace linear;

double cube(int64_t a, int64_t b, int64_t c) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

Status cholesky_ex(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  Tensor self = call.tensor("self"), target = call.result();
  if (call.flag("upper"))  // U of A is L^T of A^T
    for (Tensor* t : {&self, &target}) *t = swap_axes(*t, t->rank - 2, t->rank - 1);
  const Counts infos(call, call.result(1));
  const int64_t n = self.dim(-1);
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self);
    for_matrices<T>(call, a.count(), cube(n, n, n) / 6, n * n, [&](int64_t i, const Workspace<T>& space) {
      const Block<T> m = a[i];
      infos.data()[i] = linear::cholesky(m, space.own, space);
      for (int64_t r = 0; r < n; ++r) std::fill(m.row(r) + r + 1, m.row(r) + n, T(0));
    });
    a.store(call, target);
  });
  infos.store(call);
  if (!call.flag("check_errors")) return ok_status();
  return check_infos(call, "linalg.cholesky_ex", {infos.data(), static_cast<size_t>(infos.count())}, self.rank == 2);
}

Pivoting pivoting_of(const KernelCall& call) { return call.flag("pivot") ? Pivoting::rows : Pivoting::none; }

// Factors all matrices of `a`; pivots count from 0.
template <class T>
void factor_all(KernelCall& call, const Matrices<T>& a, Pivoting pivoting, int32_t* pivots, int32_t* infos) {
  const int64_t least = std::min(a.rows(), a.columns());
  for_matrices<T>(call, a.count(), cube(a.rows(), a.columns(), least) / 2, 0,
                  [&](int64_t i, const Workspace<T>& space) {
                    const int32_t info = linear::lu(a[i], pivots + i * least, pivoting, space);
                    if (infos) infos[i] = info;
                  });
}

void count_from_one(const Counts& pivots) {
  for (int64_t i = 0; i < pivots.count(); ++i) ++pivots.data()[i];
}

Status lu_factor_ex(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("A");
  const Counts pivots(call, call.result(1)), infos(call, call.result(2));
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self);
    factor_all(call, a, pivoting_of(call), pivots.data(), infos.data());
    a.store(call, call.result());
  });
  count_from_one(pivots);
  pivots.store(call), infos.store(call);
  if (!call.flag("check_errors")) return ok_status();
  return check_infos(call, "torch.linalg.lu_factor_ex", {infos.data(), static_cast<size_t>(infos.count())},
                     self.rank == 2);
}

// Unpacks the unit lower and the upper matrix from the combined result of lu().
template <class T>
void unpack_factors(KernelCall& call, const Matrices<T>& lu, const Tensor& lower, const Tensor& upper) {
  const int64_t m = lu.rows(), n = lu.columns(), k = std::min(m, n);
  const Matrices<T> l(call, batch_of(lower), m, k), u(call, batch_of(upper), k, n);
  for_rows(call, lu.count(), m * n, [&](int64_t i, int) {
    const Block<T> from = lu[i], to_l = l[i], to_u = u[i];
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < k; ++c) to_l(r, c) = r == c ? T(1) : r > c ? from(r, c) : T(0);
    for (int64_t r = 0; r < k; ++r)
      for (int64_t c = 0; c < n; ++c) to_u(r, c) = r <= c ? from(r, c) : T(0);
  });
  l.store(call, lower), u.store(call, upper);
}

// P with P L U = A, from pivots that count from 0.
void give_permutation(KernelCall& call, const Tensor& target, const int32_t* pivots, int64_t count) {
  const int64_t m = target.dim(-1);
  const Matrices<double> p(call, batch_of(target), m, m);
  for_rows(call, p.count(), m * m, [&](int64_t i, int) {
    set_identity(p[i]);
    swap_rows(p[i], pivots + i * count, count, Swaps::back);  // P^T = S_k .. S_0, so P = S_0 .. S_k
  });
  p.store(call, target);
}

Status lu_parts(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("A");
  const int64_t least = std::min(self.dim(-2), self.dim(-1));
  const Pivoting pivoting = pivoting_of(call);
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self);
    auto* pivots = call.scratch().take<int32_t>(a.count() * least);
    factor_all<T>(call, a, pivoting, pivots, nullptr);
    unpack_factors(call, a, call.result(1), call.result(2));
    if (pivoting == Pivoting::rows) give_permutation(call, call.result(), pivots, least);
  });
  return ok_status();
}

Status lu_unpack(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("LU_data");
  const int64_t least = std::min(self.dim(-2), self.dim(-1));
  if (call.flag("unpack_data"))
    visit_field(self.dtype,
                [&]<class T>() { unpack_factors(call, Matrices<T>(call, self), call.result(1), call.result(2)); });
  if (!call.flag("unpack_pivots")) return ok_status();
  int32_t* pivots = nullptr;
  SG_TRY(read_pivots(call, call.tensor("LU_pivots"), self.dim(-2), &pivots));
  give_permutation(call, call.result(), pivots, least);
  return ok_status();
}

// --- determinants and inverses ---

// PyTorch factors the transpose of a row-major real matrix, and its gradient relies on that.
Tensor as_factored(const Tensor& t) {
  return t.is_contiguous() && !is_complex(t.dtype) ? swap_axes(t, t.rank - 2, t.rank - 1) : t;
}

// Calls fn(sign of the row swaps, factored matrix, i) for each matrix of "A"; results LU and pivots start at `first`.
template <class T, class Fn>
void for_factored(KernelCall& call, size_t first, const Fn& fn) {
  const Tensor& self = call.tensor("A");
  const Counts pivots(call, call.result(first + 1));
  const Matrices<T> a(call, as_factored(self));
  factor_all<T>(call, a, Pivoting::rows, pivots.data(), nullptr);
  for (int64_t i = 0; i < a.count(); ++i) {
    double sign = 1;
    for (int64_t k = 0; k < a.rows(); ++k)
      if (pivots.data()[i * a.rows() + k] != k) sign = -sign;
    fn(sign, a[i], i);
  }
  count_from_one(pivots);
  pivots.store(call);
  a.store(call, call.result(first));
}

Status det(KernelCall& call) {
  visit_field(call.tensor("A").dtype, [&]<class T>() {
    const Tensor out = call.scratch().tensor(kFieldType<T>, call.result().sizes());
    for_factored<T>(call, 1, [&](double sign, const Block<T>& m, int64_t i) {
      T product = sign;
      for (int64_t k = 0; k < m.rows; ++k) product = times(product, m(k, k));
      out.as<T>()[i] = product;
    });
    copy(call, call.result(), out);
  });
  return ok_status();
}

Status slogdet(KernelCall& call) {
  visit_field(call.tensor("A").dtype, [&]<class T>() {
    const Tensor signs = call.scratch().tensor(kFieldType<T>, call.result().sizes());
    const Tensor logs = call.scratch().tensor(DType::f64, call.result().sizes());
    for_factored<T>(call, 2, [&](double sign, const Block<T>& m, int64_t i) {
      T product = sign;
      double sum = 0;
      for (int64_t k = 0; k < m.rows; ++k) {
        const double size = std::abs(m(k, k));
        product = size == 0 ? T(0) : times(product, m(k, k) / size);
        sum += std::log(size);
      }
      signs.as<T>()[i] = product, logs.as<double>()[i] = sum;
    });
    copy(call, call.result(), signs);
    copy(call, call.result(1), logs);
  });
  return ok_status();
}

Status inv_ex(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("A");
  const int64_t n = self.dim(-1);
  const Counts infos(call, call.result(1));
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self), x(call, batch_of(self), n, n);
    for_matrices<T>(call, a.count(), cube(n, n, n), n, [&](int64_t i, const Workspace<T>& space) {
      auto* pivots = reinterpret_cast<int32_t*>(space.own);
      infos.data()[i] = linear::lu(a[i], pivots, Pivoting::rows, space);
      set_identity(x[i]);
      solve_factored(Factor<T>(a[i]), pivots, Operator::plain, x[i], space);
    });
    x.store(call, call.result());
  });
  infos.store(call);
  if (!call.flag("check_errors")) return ok_status();
  return check_infos(call, "linalg.inv_ex", {infos.data(), static_cast<size_t>(infos.count())}, self.rank == 2);
}

// --- QR ---

// Copies the upper triangle of the first rows of `a`.
template <class T>
void keep_upper(const Block<T>& to, const Block<T>& a) {
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.columns; ++j) to(i, j) = i <= j ? a(i, j) : T(0);
}

Status qr(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor &self = call.tensor("A"), &q_out = call.result(), &r_out = call.result(1);
  const int64_t m = self.dim(-2), n = self.dim(-1), least = std::min(m, n);
  const bool with_q = call.text("mode") != "r";
  visit_field(self.dtype, [&]<class T>() {
    const int64_t width = with_q ? q_out.dim(-1) : 0;
    const Matrices<T> a(call, self), r(call, batch_of(r_out), r_out.dim(-2), n), q(call, batch_of(self), m, width);
    const int64_t room = least + reflections_room(m, std::max(n, width));
    for_matrices<T>(call, a.count(), 2 * cube(m, n, least), room, [&](int64_t i, const Workspace<T>& space) {
      Workspace<T> inner = space;
      inner.own += least;
      factor_qr(a[i], space.own, inner);
      keep_upper(r[i], a[i]);
      if (!with_q) return;
      set_identity(q[i]);
      apply_reflections(a[i], space.own, least, Operator::plain, q[i], inner);
    });
    r.store(call, r_out);
    if (with_q) q.store(call, q_out);
  });
  return ok_status();
}

Status geqrf(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("self");
  const int64_t m = self.dim(-2), n = self.dim(-1), least = std::min(m, n);
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self);
    const Tensor tau = call.scratch().tensor(kFieldType<T>, call.result(1).sizes());
    for_matrices<T>(call, a.count(), cube(m, n, least), reflections_room(m, n),
                    [&](int64_t i, const Workspace<T>& space) { factor_qr(a[i], tau.as<T>() + i * least, space); });
    a.store(call, call.result());
    copy(call, call.result(1), tau);
  });
  return ok_status();
}

Status householder_product(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("input");
  const int64_t m = self.dim(-2), n = self.dim(-1), count = call.tensor("tau").dim(-1);
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self), q(call, batch_of(self), m, n);
    const Tensor tau = contiguous_as(call, call.tensor("tau"), kFieldType<T>);
    for_matrices<T>(call, a.count(), cube(m, n, count), reflections_room(m, n),
                    [&](int64_t i, const Workspace<T>& space) {
                      set_identity(q[i]);
                      apply_reflections(a[i], tau.as<T>() + i * count, count, Operator::plain, q[i], space);
                    });
    q.store(call, call.result());
  });
  return ok_status();
}

// Q C or Q^H C; C Q and C Q^H by way of their adjoints.
Status ormqr(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor &self = call.tensor("self"), &other = call.tensor("input3");
  const bool left = call.flag("left");
  const Operator q = adjoint_if(call.flag("transpose") == left);
  const int64_t m = self.dim(-2), count = call.tensor("input2").dim(-1);
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self), c(call, left ? other : adjoint_of(other));
    const Tensor tau = contiguous_as(call, call.tensor("input2"), kFieldType<T>);
    for_matrices<T>(call, a.count(), cube(m, c.columns(), count), reflections_room(m, c.columns()),
                    [&](int64_t i, const Workspace<T>& space) {
                      apply_reflections(a[i], tau.as<T>() + i * count, count, q, c[i], space);
                      if (!left) conjugate_all(c[i]);
                    });
    const Tensor& out = call.result();
    c.store(call, left ? out : swap_axes(out, out.rank - 2, out.rank - 1));
  });
  return ok_status();
}

Status check_errors(KernelCall& call) {
  const Tensor info = contiguous(call, call.tensor("info"));
  return check_infos(call, call.text("api_name"), {info.as<int32_t>(), static_cast<size_t>(info.elements())},
                     call.flag("is_matrix"));
}

constexpr KernelRow kRows[] = {
    {"aten.linalg_cholesky_ex.default", cholesky_ex},
    {"aten.linalg_lu_factor_ex.default", lu_factor_ex},
    {"aten.linalg_lu.default", lu_parts},
    {"aten.lu_unpack.default", lu_unpack},
    {"aten._linalg_det.default", det},
    {"aten._linalg_slogdet.default", slogdet},
    {"aten.linalg_inv_ex.default", inv_ex},
    {"aten.linalg_qr.default", qr},
    {"aten.geqrf.default", geqrf},
    {"aten.linalg_householder_product.default", householder_product},
    {"aten.ormqr.default", ormqr},
    {"aten._linalg_check_errors.default", check_errors},
};

}  // namespace

std::span<const KernelRow> decomposition_kernels() { return kRows; }

}  // namespace sg::cpu
