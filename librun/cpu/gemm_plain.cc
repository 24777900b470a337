#include "librun/cpu/gemm_plain.h"

#include <algorithm>

#include "librun/cpu/isa.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kChunk = 256;  // columns summed at a time

// The accumulator: unsigned, because wrap-around is defined for it, and every narrower result is its low bits.
template <class T>
using Sum = std::conditional_t<is_complex_type<T>, C128, uint64_t>;

template <class T>
SG_INLINE Sum<T> load(const T& value, bool conjugate) {
  if constexpr (is_complex_type<T>) return {value.real(), conjugate ? -value.imag() : value.imag()};
  else return static_cast<Sum<T>>(static_cast<int64_t>(value));
}

template <class T>
Sum<T> number(Scalar s) {
  if constexpr (is_complex_type<T>) return s.to_complex();
  else return static_cast<Sum<T>>(s.to_int());
}

// By definition: std::complex's own product also corrects infinities, at many times the cost.
template <class S>
SG_INLINE S multiply(const S& a, const S& b) {
  if constexpr (is_complex_type<S>)
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  else return a * b;
}

template <class T>
T store(const Sum<T>& sum) {
  if constexpr (is_complex_type<T>)
    return {static_cast<typename T::value_type>(sum.real()), static_cast<typename T::value_type>(sum.imag())};
  else if constexpr (std::is_same_v<T, bool>) return sum != 0;
  else return static_cast<T>(sum);
}

int64_t batch_offset(const Tensor& t, int64_t entry) {
  int64_t offset = 0;
  for (int axis = t.rank - 3; axis >= 0; --axis) {
    offset += entry % t.dim(axis) * t.step(axis);
    entry /= t.dim(axis);
  }
  return offset;
}

// sums += x * row, with a separate loop for contiguous elements.
template <class T>
SG_CLONES void add_scaled(Sum<T> x, const T* row, int64_t step, bool conjugate, int64_t count, Sum<T>* sums) {
  if (step == 1)
    for (int64_t j = 0; j < count; ++j) sums[j] += multiply(x, load(row[j], conjugate));
  else
    for (int64_t j = 0; j < count; ++j) sums[j] += multiply(x, load(row[j * step], conjugate));
}

// Computes row i of one batch entry.
template <class T>
void multiply_row(const Gemm& g, int64_t entry, int64_t i) {
  int64_t n = g.out.dim(-1), depth = g.a.dim(-1);
  const T* a = g.a.as<T>() + batch_offset(g.a, entry) + i * g.a.step(-2);
  const T* b = g.b.as<T>() + batch_offset(g.b, entry);
  T* out = g.out.as<T>() + batch_offset(g.out, entry) + i * g.out.step(-2);
  bool has_self = !g.self.is_none() && g.beta.to_complex() != 0.0;
  const T* self = has_self ? g.self.as<T>() + batch_offset(g.self, entry) + i * g.self.step(-2) : nullptr;
  Sum<T> alpha = number<T>(g.alpha), beta = number<T>(g.beta);
  for (int64_t j0 = 0; j0 < n; j0 += kChunk) {
    Sum<T> sums[kChunk] = {};
    int64_t count = std::min(kChunk, n - j0);
    for (int64_t k = 0; k < depth; ++k) {
      Sum<T> x = load(a[k * g.a.step(-1)], g.a.conjugate);
      const T* row = b + k * g.b.step(-2) + j0 * g.b.step(-1);
      add_scaled(x, row, g.b.step(-1), g.b.conjugate, count, sums);
    }
    for (int64_t j = 0; j < count; ++j) {
      Sum<T> value = multiply(alpha, sums[j]);
      if (self) value += multiply(beta, load(self[(j0 + j) * g.self.step(-1)], g.self.conjugate));
      out[(j0 + j) * g.out.step(-1)] = store<T>(value);
    }
  }
}

}  // namespace

void gemm_plain(KernelCall& call, const Gemm& g) {
  int64_t m = g.out.dim(-2), rows = m;
  for (int axis = 0; axis + 2 < g.out.rank; ++axis) rows *= g.out.dim(axis);
  int64_t row_work = std::max<int64_t>(g.out.dim(-1) * g.a.dim(-1), 1);
  visit_dtype(g.a.dtype, [&]<class T>() {
    if constexpr (is_complex_type<T> || std::is_integral_v<T>)
      call.team().parallel_for(rows, std::max<int64_t>(1, (1 << 16) / row_work), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) multiply_row<T>(g, row / m, row % m);
      });
  });
}

}  // namespace sg::cpu
