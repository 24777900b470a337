// Linear systems: by LU, or by a given triangular or Cholesky factor. Batches broadcast. In double; each thread takes a
// matrix of right-hand sides.
#include <vector>

#include "librun/cpu/kernels.h"
#include "librun/cpu/linear/calls.h"
#include "librun/cpu/linear/factor.h"

namespace sg::cpu {
namespace {

using namespace linear;

double work_of(int64_t n, int64_t sides) {
  return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(std::max<int64_t>(sides, 1));
}

// The right-hand sides of a system and the destination of its solution: columns, on whichever side the matrix stands. X
// A = B is solved as A^H X^H = B^H.
template <class T>
class Sides {
 public:
  Sides(KernelCall& call, const Tensor& b, const Tensor& result, bool left)
      : target_(result), left_(left), x_(call, left ? b : adjoint_of(b), batch_of(result)) {}
  const Matrices<T>& x() const { return x_; }
  void store(KernelCall& call) const {
    if (left_) return x_.store(call, target_);
    for (int64_t i = 0; i < x_.count(); ++i) conjugate_all(x_[i]);
    x_.store(call, swap_axes(target_, target_.rank - 2, target_.rank - 1));
  }

 private:
  Tensor target_;
  bool left_;
  Matrices<T> x_;
};

// Calls fn(matrix of a, right-hand sides, space, index of that matrix) for every matrix of right-hand sides.
template <class T, class Fn>
void for_systems(KernelCall& call, const Tensor& a_type, const Matrices<T>& a, const Sides<T>& sides,
                 const Tensor& result, const Fn& fn) {
  const std::vector<int64_t> which = matrices_of(batch_of(a_type), batch_of(result));
  const Matrices<T>& x = sides.x();
  for_matrices<T>(call, x.count(), work_of(x.rows(), x.columns()), 0, [&](int64_t i, const Workspace<T>& space) {
    const int64_t k = which[static_cast<size_t>(i)];
    fn(a[k], x[i], space, k);
  });
}

Diagonal diagonal_of(const KernelCall& call) { return call.flag("unitriangular") ? Diagonal::ones : Diagonal::given; }

// Ignores the elements on the other side of the diagonal.
Status solve_triangular(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor &a = call.tensor("self"), &b = call.tensor("B"), &out = call.result();
  const bool left = call.flag("left"), upper = call.flag("upper");
  const Diagonal diagonal = diagonal_of(call);
  visit_field(b.dtype, [&]<class T>() {
    const Matrices<T> matrices(call, a);
    const Sides<T> sides(call, b, out, left);
    for_systems<T>(call, a, matrices, sides, out,
                   [&](const Block<T>& m, const Block<T>& x, const Workspace<T>& space, int64_t) {
                     const Factor<T> f = left ? Factor<T>(m) : Factor<T>(m).adjoint();
                     if (upper == left) solve_upper(f, x, diagonal, space);
                     else solve_lower(f, x, diagonal, space);
                   });
    sides.store(call);
  });
  return ok_status();
}

// The older variant, which also returns the matrix.
Status triangular_solve(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor &b = call.tensor("self"), &a = call.tensor("A"), &out = call.result();
  const bool upper = call.flag("upper"), turned = call.flag("transpose");
  const Diagonal diagonal = diagonal_of(call);
  visit_field(b.dtype, [&]<class T>() {
    const Matrices<T> matrices(call, a);
    const Sides<T> sides(call, b, out, true);
    for_systems<T>(call, a, matrices, sides, out,
                   [&](const Block<T>& m, const Block<T>& x, const Workspace<T>& space, int64_t) {
                     const Factor<T> f = turned ? Factor<T>(m).transposed() : Factor<T>(m);
                     if (upper != turned) solve_upper(f, x, diagonal, space);
                     else solve_lower(f, x, diagonal, space);
                   });
    sides.store(call);
  });
  copy(call, call.result(1), broadcast_to(a, call.result(1).sizes()));
  return ok_status();
}

// Solves with a factor L of A = L L^H, or U of A = U^H U.
Status cholesky_solve(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor &b = call.tensor("self"), &a = call.tensor("input2"), &out = call.result();
  const bool upper = call.flag("upper");
  visit_field(b.dtype, [&]<class T>() {
    const Matrices<T> matrices(call, a);
    const Sides<T> sides(call, b, out, true);
    for_systems<T>(call, a, matrices, sides, out,
                   [&](const Block<T>& m, const Block<T>& x, const Workspace<T>& space, int64_t) {
                     const Factor<T> l = upper ? Factor<T>(m).adjoint() : Factor<T>(m);
                     solve_lower(l, x, Diagonal::given, space);
                     solve_upper(l.adjoint(), x, Diagonal::given, space);
                   });
    sides.store(call);
  });
  return ok_status();
}

Status cholesky_inverse(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& self = call.tensor("self");
  const bool upper = call.flag("upper");
  const int64_t n = self.dim(-1);
  visit_field(self.dtype, [&]<class T>() {
    const Matrices<T> a(call, self), x(call, batch_of(self), n, n);
    for_matrices<T>(call, a.count(), work_of(n, n), 0, [&](int64_t i, const Workspace<T>& space) {
      const Factor<T> l = upper ? Factor<T>(a[i]).adjoint() : Factor<T>(a[i]);
      set_identity(x[i]);
      solve_lower(l, x[i], Diagonal::given, space);
      solve_upper(l.adjoint(), x[i], Diagonal::given, space);
    });
    x.store(call, call.result());
  });
  return ok_status();
}

// A right-hand side that is a vector, by PyTorch's rule.
Tensor as_column(const Tensor& t) {
  Tensor out = t;
  out.shape[static_cast<size_t>(out.rank)] = 1, out.stride[static_cast<size_t>(out.rank)] = 1;
  ++out.rank;
  return out;
}

Status solve_ex(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor& a = call.tensor("A");
  Tensor b = call.tensor("B"), out = call.result();
  const bool left = call.flag("left");
  if (out.rank == kMaxRank) return call.fail("has too many dimensions");
  const bool is_vector = b.rank == 1 || (a.rank - 1 == b.rank &&
                                         std::ranges::equal(b.sizes(), a.sizes().first(static_cast<size_t>(b.rank))));
  if (is_vector) b = as_column(b), out = as_column(out);
  const Counts pivots(call, call.result(2)), infos(call, call.result(3));
  const int64_t n = a.dim(-1);
  visit_field(a.dtype, [&]<class T>() {
    const Matrices<T> lu(call, a);
    const Sides<T> sides(call, b, out, left);
    for_matrices<T>(call, lu.count(), work_of(n, n) / 3, 0, [&](int64_t i, const Workspace<T>& space) {
      infos.data()[i] = linear::lu(lu[i], pivots.data() + i * n, Pivoting::rows, space);
    });
    for_systems<T>(call, a, lu, sides, out,
                   [&](const Block<T>& m, const Block<T>& x, const Workspace<T>& space, int64_t k) {
                     solve_factored(Factor<T>(m), pivots.data() + k * n, adjoint_if(!left), x, space);
                   });
    sides.store(call);
    lu.store(call, call.result(1));
  });
  for (int64_t i = 0; i < pivots.count(); ++i) ++pivots.data()[i];
  pivots.store(call), infos.store(call);
  if (!call.flag("check_errors")) return ok_status();
  return check_infos(call, "torch.linalg.solve_ex", {infos.data(), static_cast<size_t>(infos.count())}, a.rank == 2);
}

Status lu_solve(KernelCall& call) {
  if (gives_nothing(call)) return ok_status();
  const Tensor &a = call.tensor("LU"), &b = call.tensor("B"), &out = call.result();
  const bool left = call.flag("left");
  const Operator op = adjoint_if(call.flag("adjoint") == left);
  const int64_t n = a.dim(-1);
  int32_t* pivots = nullptr;
  SG_TRY(read_pivots(call, call.tensor("pivots"), n, &pivots));
  visit_field(b.dtype, [&]<class T>() {
    const Matrices<T> lu(call, a);
    const Sides<T> sides(call, b, out, left);
    for_systems<T>(call, a, lu, sides, out,
                   [&](const Block<T>& m, const Block<T>& x, const Workspace<T>& space, int64_t k) {
                     solve_factored(Factor<T>(m), pivots + k * n, op, x, space);
                   });
    sides.store(call);
  });
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.linalg_solve_triangular.default", solve_triangular},
    {"aten.triangular_solve.default", triangular_solve},
    {"aten.cholesky_solve.default", cholesky_solve},
    {"aten.cholesky_inverse.default", cholesky_inverse},
    {"aten._linalg_solve_ex.default", solve_ex},
    {"aten.linalg_lu_solve.default", lu_solve},
};

}  // namespace

std::span<const KernelRow> linear_system_kernels() { return kRows; }

}  // namespace sg::cpu
