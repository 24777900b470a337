// Eigenvalues of Hermitian matrices, singular values, and matrix exponentials. In double, one matrix per thread.
#include "librun/cpu/kernels.h"
#include "librun/cpu/linear/calls.h"
#include "librun/cpu/linear/eigen.h"
#include "librun/cpu/linear/exponential.h"
#include "librun/cpu/linear/reflect.h"
#include "librun/cpu/linear/singular.h"

namespace sg::cpu {
namespace {

using namespace linear;

double cubed(int64_t n) { return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n); }

Status eigh(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  Tensor self = call.tensor("A");
  const bool with_vectors = call.flag("compute_v");
  const std::string_view half = call.text("UPLO");
  if (half == "U" || half == "u") self = adjoint_of(self);
  const int64_t n = self.dim(-1);
  std::vector<int32_t> infos;
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self), vectors(call, batch_of(self), n, n);
    const Tensor values = call.scratch().tensor(DType::f64, call.result().sizes());
    infos.resize(static_cast<size_t>(a.count()));
    for_matrices<T>(call, a.count(), 6 * cubed(n), eigen_room(n), [&](int64_t i, const Workspace<T>& space) {
      const Block<T> rows = with_vectors ? vectors[i] : Block<T>{};
      infos[static_cast<size_t>(i)] = !decompose_hermitian(a[i], values.as<double>() + i * n, rows, space);
    });
    copy(call, call.result(), values);
    const Tensor& out = call.result(1);
    if (with_vectors) vectors.store(call, swap_axes(out, out.rank - 2, out.rank - 1));
  });
  return check_infos(call, "linalg.eigh", infos, self.rank == 2);
}

// Destinations of one matrix's vectors: U^T and V^H; both null without vectors.
template <class T>
struct SingularBlocks {
  Block<T> left, right;
};

// Decomposes a matrix with many more rows than columns through its QR.
template <class T>
bool decompose_long(const Block<T>& a, double* values, const SingularBlocks<T>& out, const Workspace<T>& space) {
  const int64_t m = a.rows, n = a.columns, k = out.left.rows;
  T* own = space.own;
  T* tau = own;
  const Block<T> r{own + n, n, n, n}, left{own + n + n * n, n, n, n}, u{own + n + 2 * n * n, m, k, k};
  Workspace<T> inner = space;
  inner.own = own + n + 2 * n * n + m * k;
  factor_qr(a, tau, inner);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) r(i, j) = i <= j ? a(i, j) : T(0);
  if (!decompose_singular(r, values, out.left.data ? left : Block<T>{}, out.right, inner)) return false;
  if (!out.left.data) return true;
  set_identity(u);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) u(i, j) = left(j, i);
  apply_reflections(a, tau, n, Operator::plain, u, inner);
  assign(out.left, Factor<T>(u).transposed());
  return true;
}

bool is_long(int64_t m, int64_t n) { return 2 * m > 3 * n; }

int64_t svd_room(int64_t m, int64_t n, int64_t count) {
  if (!is_long(m, n)) return singular_room(m, n);
  return n + 2 * n * n + m * count + std::max(singular_room(n, n), reflections_room(m, std::max(count, n)));
}

// Stores the rows of `from` as columns of a result.
template <class T>
void store_columns(KernelCall& call, const Matrices<T>& from, const Tensor& out) {
  from.store(call, swap_axes(out, out.rank - 2, out.rank - 1));
}

// A matrix with more columns than rows is decomposed through its adjoint: A^H = V S U^H.
Status svd(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("A");
  const bool wide = self.dim(-2) < self.dim(-1), with_vectors = call.flag("compute_uv");
  const int64_t n = std::min(self.dim(-2), self.dim(-1)), m = std::max(self.dim(-2), self.dim(-1));
  const int64_t count = with_vectors && call.flag("full_matrices") ? m : n;  // vectors of length m
  std::vector<int32_t> infos;
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, wide ? adjoint_of(self) : self);
    const int64_t some = with_vectors ? 1 : 0;
    const Matrices<T> left(call, batch_of(self), some * count, some * m),
        right(call, batch_of(self), some * n, some * n);
    const Tensor values = call.scratch().tensor(DType::f64, call.result(1).sizes());
    infos.resize(static_cast<size_t>(a.count()));
    for_matrices<T>(call, a.count(), 12 * cubed(n), svd_room(m, n, with_vectors ? count : 0),
                    [&](int64_t i, const Workspace<T>& space) {
                      SingularBlocks<T> out;
                      if (with_vectors) out = {left[i], right[i]};
                      double* to = values.as<double>() + i * n;
                      infos[static_cast<size_t>(i)] =
                          !(is_long(m, n) ? decompose_long(a[i], to, out, space)
                                          : decompose_singular(a[i], to, out.left, out.right, space));
                      if (!with_vectors || !wide) return;
                      conjugate_all(out.left), conjugate_all(out.right);
                    });
    copy(call, call.result(1), values);
    if (!with_vectors) return;
    if (wide) left.store(call, call.result(2)), store_columns(call, right, call.result(0));
    else store_columns(call, left, call.result(0)), right.store(call, call.result(2));
  });
  return check_infos(call, "linalg.svd", infos, self.rank == 2);
}

Status matrix_exp(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("self");
  const int64_t n = self.dim(-1);
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self), out(call, batch_of(self), n, n);
    for_matrices<T>(call, a.count(), 10 * cubed(n), exponential_room(n),
                    [&](int64_t i, const Workspace<T>& space) { exponential(a[i], out[i], space); });
    out.store(call, call.result());
  });
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten._linalg_eigh.default", eigh},
    {"aten._linalg_svd.default", svd},
    {"aten.linalg_matrix_exp.default", matrix_exp},
};

}  // namespace

std::span<const KernelRow> spectral_kernels() { return kRows; }

}  // namespace sg::cpu
