#include "librun/cpu/linear/dense.h"

#include <cmath>

#include "librun/cpu/gemm_block.h"
#include "librun/cpu/isa.h"

namespace sg::cpu::linear {
namespace {

constexpr int64_t kPackedRows = 192;  // rows of a factor packed at a time
constexpr int64_t kPanelDepth = 64;   // of complex factors: number of rows copied at a time
constexpr int64_t kPanelColumns = 128;
constexpr int64_t kSmallWork = 2048;  // multiply-adds for which packing is not worthwhile

// Row by row, in the order of k.
template <class T>
void add_small(const Block<T>& c, const Factor<T>& a, const Factor<T>& b, T sign) {
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k) {
      const T x = -sign * a(i, k);
      if (b.column_step == 1 && !b.conjugated) {
        subtract_row(c.row(i), b.data + k * b.row_step, x, c.columns);
      } else {
        T* to = c.row(i);
        for (int64_t j = 0; j < c.columns; ++j) to[j] -= times(x, b(k, j));
      }
    }
}

MatrixView view_of(const Factor<double>& f) {
  return {reinterpret_cast<const std::byte*>(f.data), DType::f64, f.row_step, f.column_step};
}

void add_large(const Block<double>& c, const Factor<double>& a, const Factor<double>& b, double sign,
               const Workspace<double>& space) {
  const TileKernels<double>& kernels = tile_kernels<double>(best_isa());
  for (int64_t k = 0; k < a.columns; k += kSumBlock) {
    const int64_t depth = std::min(kSumBlock, a.columns - k);
    for (int64_t i = 0; i < c.rows; i += kPackedRows) {
      const int64_t rows = std::min(kPackedRows, c.rows - i);
      pack_block(kernels, view_of(a).at(i, k), rows, depth, space.packed, kPackedRow);
      if (sign < 0)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t x = 0; x < depth; ++x) space.packed[r * kPackedRow + x] *= -1;
      multiply_packed(kernels, {space.packed, rows, view_of(b).at(k, 0), c.columns, depth},
                      {c.row(i), c.step, false, {TileStart::add, TileStart::add}}, space.panel);
    }
  }
}

// Pieces of b are copied, so that rows are contiguous and not conjugated.
void add_large(const Block<Complex>& c, const Factor<Complex>& a, const Factor<Complex>& b, Complex sign,
               const Workspace<Complex>& space) {
  for (int64_t k = 0; k < a.columns; k += kPanelDepth)
    for (int64_t j = 0; j < c.columns; j += kPanelColumns) {
      const int64_t depth = std::min(kPanelDepth, a.columns - k), columns = std::min(kPanelColumns, c.columns - j);
      const Block<Complex> copied{space.panel, depth, columns, columns};
      assign(copied, b.part(k, j, depth, columns));
      add_small<Complex>(c.part(0, j, c.rows, columns), a.part(0, k, a.rows, depth), copied, sign);
    }
}

// Numbers side by side in memory: the compiler does not see by itself that sums in lanes are sums of these.
typedef double Eight __attribute__((vector_size(64), aligned(8), may_alias));
constexpr int64_t kLanes = 16;

SG_INLINE const Eight& eight(const double* at) { return *reinterpret_cast<const Eight*>(at); }
SG_INLINE Eight& eight(double* at) { return *reinterpret_cast<Eight*>(at); }

// The sum of lanes and of the products of fewer numbers than there are lanes.
SG_INLINE double sum_of(const Eight& low, const Eight& high, const double* x, const double* y, int64_t n) {
  double sum[kLanes];
  for (int64_t l = 0; l < kLanes / 2; ++l) sum[l] = low[l], sum[l + kLanes / 2] = high[l];
  for (int64_t l = 0; l < n; ++l) sum[l] += x[l] * y[l];
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) sum[l] += sum[l + half];
  return sum[0];
}

}  // namespace

SG_CLONES void subtract_row(double* y, const double* x, double a, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] -= a * x[i];
}

SG_CLONES double dot_rows(const double* x, const double* y, int64_t n) {
  Eight low = {}, high = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    low += eight(x + i) * eight(y + i);
    high += eight(x + i + 8) * eight(y + i + 8);
  }
  return sum_of(low, high, x + i, y + i, n - i);
}

SG_CLONES double dot_and_subtract_row(double* y, const double* x, double a, const double* z, int64_t n) {
  Eight low = {}, high = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Eight x0 = eight(x + i), x1 = eight(x + i + 8);
    eight(y + i) -= a * x0;
    eight(y + i + 8) -= a * x1;
    low += x0 * eight(z + i);
    high += x1 * eight(z + i + 8);
  }
  for (int64_t j = i; j < n; ++j) y[j] -= a * x[j];
  return sum_of(low, high, x + i, z + i, n - i);
}

Complex dot_and_subtract_row(Complex* y, const Complex* x, Complex a, const Complex* z, int64_t n) {
  Complex sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    y[i] -= times(a, conjugate(x[i]));
    sum += times(x[i], z[i]);
  }
  return sum;
}

Complex dot_rows(const Complex* x, const Complex* y, int64_t n) {
  Complex sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += times(x[i], y[i]);
  return sum;
}

void subtract_row(Complex* y, const Complex* x, Complex a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] -= times(a, x[i]);
}

template <class T>
void add_product(const Block<T>& c, const Factor<T>& a, const Factor<T>& b, Sign sign, const Workspace<T>& space) {
  if (c.rows == 0 || c.columns == 0 || a.columns == 0) return;
  const T factor = static_cast<double>(sign);
  if (c.rows * c.columns * a.columns < kSmallWork) add_small(c, a, b, factor);
  else add_large(c, a, b, factor, space);
}

template <class T>
Workspace<T> make_workspace(KernelCall& call, int64_t room) {
  const bool real = std::is_same_v<T, double>;
  return {call.scratch().take<T>(real ? kPackedRows * kPackedRow : 0),
          call.scratch().take<T>(real ? kPanelSize : kPanelDepth * kPanelColumns), call.scratch().take<T>(room)};
}

template <class T>
Matrices<T>::Matrices(KernelCall& call, std::span<const int64_t> batch, int64_t rows, int64_t columns) {
  std::vector<int64_t> shape(batch.begin(), batch.end());
  for (int64_t n : shape) count_ *= n;
  shape.push_back(rows), shape.push_back(columns);
  memory_ = call.scratch().tensor(kFieldType<T>, shape);
}

template void add_product(const Block<double>&, const Factor<double>&, const Factor<double>&, Sign,
                          const Workspace<double>&);
template void add_product(const Block<Complex>&, const Factor<Complex>&, const Factor<Complex>&, Sign,
                          const Workspace<Complex>&);
template Workspace<double> make_workspace(KernelCall&, int64_t);
template Workspace<Complex> make_workspace(KernelCall&, int64_t);
template class Matrices<double>;
template class Matrices<Complex>;

}  // namespace sg::cpu::linear
