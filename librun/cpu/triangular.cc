// Systems with a triangular matrix, by substitution, in double: A X = B, or X A = B.
#include <vector>

#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

// One right side: x = A^-1 x. What lies on the other side of the diagonal is not looked at.
void substitute(const double* a, int64_t n, bool upper, bool ones, double* x) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = upper ? n - 1 - step : step;
    double sum = x[i];
    for (int64_t k = upper ? i + 1 : 0; k < (upper ? n : i); ++k) sum -= a[i * n + k] * x[k];
    x[i] = ones ? sum : sum / a[i * n + i];
  }
}

// Batches broadcast. Right sides lie in rows: the columns of B, or its rows where it stands on the left.
Status solve_triangular(KernelCall& call) {
  Tensor a = call.tensor("self"), b = call.tensor("B");
  bool upper = call.flag("upper");
  const bool left = call.flag("left"), ones = call.flag("unitriangular");
  if (a.rank < 2 || b.rank < 2) return call.fail("needs matrices");
  Tensor target = call.result();
  if (left) b = swap_axes(b, b.rank - 2, b.rank - 1), target = swap_axes(target, target.rank - 2, target.rank - 1);
  else a = swap_axes(a, a.rank - 2, a.rank - 1), upper = !upper;  // X A = B: A' X' = B'
  const int64_t n = a.dim(-1), sides = b.dim(-2);
  std::vector<int64_t> shape(target.sizes().begin(), target.sizes().end());
  if (a.dim(-2) != n || b.dim(-1) != n || target.dim(-1) != n || target.dim(-2) != sides)
    return call.fail("the matrices do not fit");
  if (!broadcasts(b, shape)) return call.fail("the batch sizes do not broadcast");
  int64_t batch = 1;
  for (size_t d = 0; d + 2 < shape.size(); ++d) batch *= shape[d];
  Tensor x = call.scratch().tensor(DType::f64, shape);
  copy(call, x, broadcast_to(b, shape));
  shape[shape.size() - 2] = n;
  if (!broadcasts(a, shape)) return call.fail("the batch sizes do not broadcast");
  const double* matrix = contiguous_as(call, broadcast_to(a, shape), DType::f64).as<double>();
  for_rows(call, batch * sides, n * n, [&](int64_t row, int) {
    substitute(matrix + row / sides * n * n, n, upper, ones, x.as<double>() + row * n);
  });
  copy(call, target, x);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.linalg_solve_triangular.default", solve_triangular},
};

}  // namespace

std::span<const KernelRow> triangular_kernels() { return kRows; }

}  // namespace sg::cpu
