// Reflections are found for a panel of columns at a time. Until its end the rest of the matrix stays as it was, less
// what the panel's vectors v and w take away: a - sum of v w^H + w v^H. Only then is that done, as products.
#include "librun/cpu/linear/tridiagonal.h"

#include "librun/cpu/linear/reflect.h"

namespace sg::cpu::linear {
namespace {

constexpr int64_t kPanel = 32;       // columns
constexpr int64_t kUpdateRows = 96;  // updated together, as far as their last diagonal element

template <class T>
class Tridiagonal {
 public:
  Tridiagonal(const Block<T>& a, double* d, double* e, T* tau, const Workspace<T>& space)
      : a_(a), d_(d), e_(e), tau_(tau), w_{space.own, kPanel, a.rows, a.rows}, space_(space) {}

  void run() {
    const int64_t n = a_.rows;
    for (int64_t first = 0; first + 1 < n; first += kPanel) {
      const int64_t count = std::min(kPanel, n - 1 - first);
      for (int64_t k = first; k < first + count; ++k) reflect(first, k);
      update(first, first + count);
      for (int64_t i = first + 1; i < n; ++i)
        for (int64_t k = first; k < std::min(first + count, i); ++k) a_(i, k) = a_(k, i);
    }
    d_[n - 1] = real_part(a_(n - 1, n - 1));
  }

 private:
  // The vectors of column k, by row of the matrix. v lies right of the diagonal, where nothing is read.
  T* v(int64_t k) const { return a_.row(k); }
  T* w(int64_t first, int64_t k) const { return w_.row(k - first); }

  void reflect(int64_t first, int64_t k) {
    const int64_t n = a_.rows, m = n - k - 1;
    T *column = v(k), *mine = w(first, k);
    for (int64_t i = k + 1; i < n; ++i) column[i] = a_(i, k);
    for (int64_t j = first; j < k; ++j) {
      subtract_row(column + k, v(j) + k, conjugate(w(first, j)[k]), m + 1);
      subtract_row(column + k, w(first, j) + k, conjugate(v(j)[k]), m + 1);
    }
    d_[k] = real_part(column[k]);
    tau_[k] = make_reflection(column + k + 1, column + k + 2, m - 1, 1);
    e_[k] = real_part(column[k + 1]);
    column[k + 1] = 1;
    std::fill_n(mine + k + 1, m, T(0));
    if (tau_[k] == T(0)) {
      std::fill_n(column + k + 1, m, T(0));
      return;
    }
    multiply(k + 1, column, mine);
    for (int64_t j = first; j < k; ++j) {
      const T by_w = inner(w(first, j) + k + 1, column + k + 1, m), by_v = inner(v(j) + k + 1, column + k + 1, m);
      subtract_row(mine + k + 1, v(j) + k + 1, by_w, m);
      subtract_row(mine + k + 1, w(first, j) + k + 1, by_v, m);
    }
    for (int64_t i = k + 1; i < n; ++i) mine[i] = times(tau_[k], mine[i]);
    subtract_row(mine + k + 1, column + k + 1, times(tau_[k], inner(mine + k + 1, column + k + 1, m)) * 0.5, m);
  }

  // to = a x, from row and column `first` on, by the lower half.
  void multiply(int64_t first, const T* x, T* to) {
    for (int64_t i = first; i < a_.rows; ++i) {
      const T* row = a_.row(i) + first;
      const int64_t before = i - first;
      const T sum = dot_and_subtract_row(to + first, row, -x[i], x + first, before);
      to[i] += sum + x[i] * real_part(row[before]);
    }
  }

  // x^H y
  static T inner(const T* x, const T* y, int64_t n) {
    if constexpr (std::is_same_v<T, Complex>) {
      T sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += times(conjugate(x[i]), y[i]);
      return sum;
    } else {
      return dot_rows(x, y, n);
    }
  }

  // The lower half from row and column `last` on.
  void update(int64_t first, int64_t last) {
    const int64_t count = last - first;
    for (int64_t i = last; i < a_.rows; i += kUpdateRows) {
      const int64_t rows = std::min(kUpdateRows, a_.rows - i), columns = i + rows - last;
      const Block<T> vs = a_.part(first, last, count, columns), ws = w_.part(0, last, count, columns);
      const Block<T> to = a_.part(i, last, rows, columns);
      const int64_t at = i - last;
      add_product(to, Factor<T>(vs.part(0, at, count, rows)).transposed(), Factor<T>(ws).transposed().adjoint(),
                  Sign::minus, space_);
      add_product(to, Factor<T>(ws.part(0, at, count, rows)).transposed(), Factor<T>(vs).transposed().adjoint(),
                  Sign::minus, space_);
    }
  }

  Block<T> a_;
  double *d_, *e_;
  T* tau_;
  Block<T> w_;
  Workspace<T> space_;
};

}  // namespace

int64_t tridiagonal_room(int64_t n) { return kPanel * n; }

template <class T>
void make_tridiagonal(const Block<T>& a, double* d, double* e, T* tau, const Workspace<T>& space) {
  Tridiagonal<T>(a, d, e, tau, space).run();
}

#define SG_FIELD(T) template void make_tridiagonal(const Block<T>&, double*, double*, T*, const Workspace<T>&);
SG_FIELD(double)
SG_FIELD(Complex)
#undef SG_FIELD

}  // namespace sg::cpu::linear
