// Dense matrices of double or complex double, and their products: the building blocks of factorisations. Each runs on
// one thread.
//
// Bits depend only on the numbers and sizes. Larger real products are those of gemm_tile.h; smaller and complex ones
// are summed row by row.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "librun/cpu/fill.h"
#include "librun/cpu/rows.h"

namespace sg::cpu::linear {

using Complex = std::complex<double>;

// Products without the checks for infinities that the language requires for complex ones.
inline double times(double a, double b) { return a * b; }
inline Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
inline double conjugate(double x) { return x; }
inline Complex conjugate(Complex x) { return {x.real(), -x.imag()}; }
inline double real_part(double x) { return x; }
inline double real_part(Complex x) { return x.real(); }
inline double square_of(double x) { return x * x; }
inline double square_of(Complex x) { return x.real() * x.real() + x.imag() * x.imag(); }

// A matrix in memory, its rows `step` apart.
template <class T>
struct Block {
  T* data = nullptr;
  int64_t rows = 0, columns = 0, step = 0;

  T* row(int64_t i) const { return data + i * step; }
  T& operator()(int64_t i, int64_t j) const { return data[i * step + j]; }
  Block part(int64_t i, int64_t j, int64_t m, int64_t n) const { return {data + i * step + j, m, n, step}; }
  Block top(int64_t m) const { return {data, m, columns, step}; }
  Block below(int64_t i) const { return part(i, 0, rows - i, columns); }
};

// A matrix that is read: a block, its transpose or its adjoint.
template <class T>
struct Factor {
  const T* data;
  int64_t rows, columns, row_step, column_step;
  bool conjugated = false;

  Factor(const Block<T>& b) : data(b.data), rows(b.rows), columns(b.columns), row_step(b.step), column_step(1) {}
  T operator()(int64_t i, int64_t j) const {
    const T x = data[i * row_step + j * column_step];
    return conjugated ? conjugate(x) : x;
  }
  Factor part(int64_t i, int64_t j, int64_t m, int64_t n) const {
    Factor f = *this;
    f.data += i * row_step + j * column_step, f.rows = m, f.columns = n;
    return f;
  }
  Factor transposed() const {
    Factor f = *this;
    std::swap(f.rows, f.columns), std::swap(f.row_step, f.column_step);
    return f;
  }
  Factor adjoint() const {
    Factor f = transposed();
    f.conjugated = std::is_same_v<T, Complex> && !conjugated;
    return f;
  }
};

// y -= a x, for a row of n numbers.
void subtract_row(double* y, const double* x, double a, int64_t n);
void subtract_row(Complex* y, const Complex* x, Complex a, int64_t n);
// y -= a x', the conjugates of a row x, and the sum of x[i] z[i], in lanes.
double dot_and_subtract_row(double* y, const double* x, double a, const double* z, int64_t n);
Complex dot_and_subtract_row(Complex* y, const Complex* x, Complex a, const Complex* z, int64_t n);
// The sum of x[i] y[i], in lanes.
double dot_rows(const double* x, const double* y, int64_t n);
Complex dot_rows(const Complex* x, const Complex* y, int64_t n);

// Scratch space of one thread for products, plus space of the caller's own: [room].
template <class T>
struct Workspace {
  T* packed;  // space for one packed factor
  T* panel;   // space for the other
  T* own;
};

template <class T>
Workspace<T> make_workspace(KernelCall& call, int64_t room);

enum class Sign : int8_t { minus = -1, plus = 1 };
enum class Operator : uint8_t { plain, adjoint };
inline Operator adjoint_if(bool wanted) { return wanted ? Operator::adjoint : Operator::plain; }

// c = c + a b, or c - a b. REQUIRES: matching sizes; c does not overlap a and b
template <class T>
void add_product(const Block<T>& c, const Factor<T>& a, const Factor<T>& b, Sign sign, const Workspace<T>& space);

template <class T>
void set_zero(const Block<T>& b) {
  for (int64_t i = 0; i < b.rows; ++i) std::fill_n(b.row(i), b.columns, T(0));
}
template <class T>
void set_identity(const Block<T>& b) {
  set_zero(b);
  for (int64_t i = 0; i < std::min(b.rows, b.columns); ++i) b(i, i) = T(1);
}
template <class T>
void assign(const Block<T>& to, const Factor<T>& from) {  // REQUIRES: matching sizes; no overlap
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.columns; ++j) to(i, j) = from(i, j);
}

// Calls fn.template operator()<T>() with the type in which tensors of a floating or complex element type are computed.
template <class Fn>
void visit_field(DType t, const Fn& fn) {
  if (is_complex(t)) fn.template operator()<Complex>();
  else fn.template operator()<double>();
}
template <class T>
inline constexpr DType kFieldType = std::is_same_v<T, Complex> ? DType::c128 : DType::f64;

// The matrices of a tensor, in its last two axes, copied to memory of their own as T.
template <class T>
class Matrices {
 public:
  // From any tensor, with the elements of `t` broadcast to the given batch sizes.
  Matrices(KernelCall& call, const Tensor& t, std::span<const int64_t> batch)
      : Matrices(call, batch, t.dim(-2), t.dim(-1)) {
    copy(call, memory_, broadcast_to(t, memory_.sizes()));
  }
  Matrices(KernelCall& call, const Tensor& t) : Matrices(call, t, t.sizes().first(static_cast<size_t>(t.rank - 2))) {}
  // Not initialised.
  Matrices(KernelCall& call, std::span<const int64_t> batch, int64_t rows, int64_t columns);

  int64_t count() const { return count_; }
  int64_t rows() const { return memory_.dim(-2); }
  int64_t columns() const { return memory_.dim(-1); }
  Block<T> operator[](int64_t i) const {
    return {memory_.as<T>() + i * rows() * columns(), rows(), columns(), columns()};
  }
  void store(KernelCall& call, const Tensor& to) const { copy(call, to, memory_); }

 private:
  Tensor memory_;
  int64_t count_ = 1;
};

// Batch sizes of a tensor whose last `last` axes are a matrix or a vector.
inline std::span<const int64_t> batch_of(const Tensor& t, int last = 2) {
  return t.sizes().first(static_cast<size_t>(t.rank - last));
}

// fn(i, space) for each of `count` matrices of about `work` multiply-adds, over the threads; `room`: of space.own.
template <class T, class Fn>
void for_matrices(KernelCall& call, int64_t count, double work, int64_t room, const Fn& fn) {
  if (count == 0) return;
  std::vector<Workspace<T>> spaces;
  for (int i = 0; i < call.team().size(); ++i) spaces.push_back(make_workspace<T>(call, room));
  const auto length = static_cast<int64_t>(std::clamp(work, 1.0, 1e9));
  for_rows(call, count, length, [&](int64_t i, int thread) { fn(i, spaces[static_cast<size_t>(thread)]); });
}

}  // namespace sg::cpu::linear
