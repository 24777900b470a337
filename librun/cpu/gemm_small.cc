#include "librun/cpu/gemm_small.h"

#include <cmath>

#include "librun/cpu/gemm_block.h"
#include "librun/cpu/isa.h"

namespace sg::cpu {
namespace {

constexpr int64_t kSmall = 16, kSmallDepth = kShortSum;  // limit: below it no units are used, and a sum is one chain

template <class T>
struct SmallMatrix {
  T* data;
  int64_t row, column;  // strides
};

// kWide: at least the number of columns.
template <int kWide, class T>
SG_CLONES void multiply_small(SmallMatrix<const T> a, SmallMatrix<const T> b, SmallMatrix<T> out, int64_t m, int64_t n,
                              int64_t k) {
  T right[kSmallDepth * kWide];
  for (int64_t p = 0; p < k; ++p)
    for (int64_t j = 0; j < kWide; ++j) right[p * kWide + j] = j < n ? b.data[p * b.row + j * b.column] : T{0};
  for (int64_t i = 0; i < m; ++i) {
    T sums[kWide] = {};
    for (int64_t p = 0; p < k; ++p) {
      const T x = a.data[i * a.row + p * a.column];
      for (int64_t j = 0; j < kWide; ++j) sums[j] = std::fma(x, right[p * kWide + j], sums[j]);
    }
    for (int64_t j = 0; j < n; ++j) out.data[i * out.row + j * out.column] = sums[j];
  }
}

template <class T>
SmallMatrix<T> entry_of(const Tensor& t, int64_t entry) {
  const MatrixView v = matrix_of(t, entry);
  return {reinterpret_cast<T*>(const_cast<std::byte*>(v.data)), v.row_step, v.column_step};
}

template <class T>
void run_small(KernelCall& call, const Gemm& g) {
  const int64_t m = g.out.dim(-2), n = g.out.dim(-1), k = g.a.dim(-1);
  int64_t batch = 1;
  for (int axis = 0; axis + 2 < g.out.rank; ++axis) batch *= g.out.dim(axis);
  const auto multiply = n <= 4 ? multiply_small<4, T> : n <= 8 ? multiply_small<8, T> : multiply_small<16, T>;
  call.team().parallel_for(batch, std::max<int64_t>(1, kPieceElements / (m * n * k)), [&](int64_t begin, int64_t end) {
    for (int64_t entry = begin; entry < end; ++entry)
      multiply(entry_of<const T>(g.a, entry), entry_of<const T>(g.b, entry), entry_of<T>(g.out, entry), m, n, k);
  });
}

}  // namespace

bool is_small_product(const Gemm& g) {
  const int64_t m = g.out.dim(-2), n = g.out.dim(-1), k = g.a.dim(-1);
  return (g.a.dtype == DType::f32 || g.a.dtype == DType::f64) && g.out.dtype == g.a.dtype && g.b.dtype == g.a.dtype &&
         g.self.is_none() && g.alpha.to_double() == 1 && m > 0 && n > 0 && k > 0 && m <= kSmall && n <= kSmall &&
         k <= kSmallDepth;
}

void gemm_small(KernelCall& call, const Gemm& g) {
  if (g.a.dtype == DType::f64) run_small<double>(call, g);
  else run_small<float>(call, g);
}

}  // namespace sg::cpu
