// Decompositions of matrices with more rows than one panel of reflections or one batch of rotations, held against what
// defines them: A V = V D, V^H V = I, and A = U S V^H.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;

namespace {

using Entry = std::complex<double>;

// Rows of complex numbers, whatever a kernel computes in.
struct Matrix {
  int64_t rows, columns;
  std::vector<Entry> values = std::vector<Entry>(static_cast<size_t>(rows * columns));
  Entry& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  Entry at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

template <class T>
constexpr bool kIsComplex = std::is_same_v<T, C64> || std::is_same_v<T, C128>;
// The real numbers that eigenvalues and singular values of T are.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, C64>, float, double>;

template <class T>
Matrix matrix_of(Buffer<T>& b) {
  Matrix out{b.tensor().dim(0), b.tensor().dim(1)};
  for (int64_t i = 0; i < b.tensor().elements(); ++i) out.values[static_cast<size_t>(i)] = Entry(b.at(i));
  return out;
}

template <class T>
Buffer<T> buffer_of(const Matrix& m) {
  Buffer<T> out({m.rows, m.columns});
  for (int64_t i = 0; i < m.rows * m.columns; ++i) {
    const Entry x = m.values[static_cast<size_t>(i)];
    if constexpr (kIsComplex<T>) out.at(i) = T(x);
    else out.at(i) = static_cast<T>(x.real());
  }
  return out;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.columns};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j) out.at(i, j) += a.at(i, k) * b.at(k, j);
  return out;
}

Matrix adjoint(const Matrix& a) {
  Matrix out{a.columns, a.rows};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) out.at(j, i) = std::conj(a.at(i, j));
  return out;
}

// The first columns of a, column j times d[j].
Matrix scaled(const Matrix& a, const std::vector<double>& d) {
  Matrix out{a.rows, static_cast<int64_t>(d.size())};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < out.columns; ++j) out.at(i, j) = a.at(i, j) * d[static_cast<size_t>(j)];
  return out;
}

template <class R>
std::vector<double> numbers_of(Buffer<R>& b) {
  const std::vector<R> values = b.values();
  return {values.begin(), values.end()};
}

double distance(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (size_t i = 0; i < a.values.size(); ++i) most = std::max(most, std::abs(a.values[i] - b.values[i]));
  return most;
}

Matrix identity(int64_t n) {
  Matrix out{n, n};
  for (int64_t i = 0; i < n; ++i) out.at(i, i) = 1;
  return out;
}

// What makes a matrix hard to reflect or to rotate.
enum class Kind { full, ones, sparse, low_rank, equal_values, graded, tiny, huge };

template <class T>
Matrix random_matrix(test::Rng& rng, int64_t rows, int64_t columns, Kind kind) {
  auto number = [&] { return static_cast<double>(rng.between(-1000, 1000)) / 1000; };
  auto entry = [&] { return Entry(number(), kIsComplex<T> ? number() : 0); };
  Matrix out{rows, columns};
  for (Entry& x : out.values) x = kind == Kind::ones ? 1 : kind == Kind::sparse && rng.percent(90) ? 0 : entry();
  if (kind == Kind::low_rank || kind == Kind::equal_values) {
    Matrix left{rows, 3}, right{3, columns};
    for (Entry& x : left.values) x = entry();
    for (Entry& x : right.values) x = entry();
    out = product(left, right);
  }
  for (int64_t i = 0; kind == Kind::graded && i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out.at(i, j) *= std::pow(0.8, static_cast<double>(i + j) / 2);
  const double scale = kind == Kind::tiny ? 1e-30 : kind == Kind::huge ? 1e30 : 1;
  for (Entry& x : out.values) x *= sizeof(RealOf<T>) == 4 ? scale : std::pow(scale, 10);
  for (int64_t i = 0; kind == Kind::equal_values && i < std::min(rows, columns); ++i) out.at(i, i) += 5;
  return out;
}

double largest(const Matrix& a) {
  double most = 0;
  for (const Entry& x : a.values) most = std::max(most, std::abs(x));
  return most;
}

// What may be lost of numbers up to 1 in a decomposition of n rows.
template <class T>
double rounding(int64_t n) {
  return (sizeof(RealOf<T>) == 4 ? 2e-6 : 4e-15) * static_cast<double>(n);
}

template <class T>
bool same_bits(const Buffer<T>& a, const Buffer<T>& b) {
  return std::memcmp(a.tensor().data, b.tensor().data, static_cast<size_t>(a.tensor().elements()) * sizeof(T)) == 0;
}

template <class T>
void check_eigenvectors(test::Rng& rng, int64_t n, Kind kind) {
  CAPTURE(n, static_cast<int>(kind), sizeof(T));
  Matrix a = random_matrix<T>(rng, n, n, kind);
  const Matrix turned = adjoint(a);
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += turned.values[i];
  Buffer<T> given = buffer_of<T>(a);
  a = matrix_of(given);

  Buffer<RealOf<T>> values({n}), again({n}), alone({n});
  Buffer<T> vectors({n, n}), vectors_again({n, n}), none({0});
  REQUIRE(test::call("aten._linalg_eigh.default", {{"A", given}}, {values.tensor(), vectors.tensor()}).ok());
  REQUIRE(test::call("aten._linalg_eigh.default", {{"A", given}}, {again.tensor(), vectors_again.tensor()}, 3).ok());
  CHECK(same_bits(values, again));
  CHECK(same_bits(vectors, vectors_again));
  REQUIRE(test::call("aten._linalg_eigh.default", {{"A", given}, {"UPLO", "U"}, {"compute_v", false}},
                     {alone.tensor(), none.tensor()})
              .ok());

  const Matrix v = matrix_of(vectors);
  const std::vector<double> d = numbers_of(values), d_alone = numbers_of(alone);
  const double error = rounding<T>(n) * largest(a);
  CHECK(distance(product(a, v), scaled(v, d)) <= error);
  CHECK(distance(product(adjoint(v), v), identity(n)) <= rounding<T>(n));
  CHECK(std::is_sorted(d.begin(), d.end()));
  for (size_t i = 0; i < d.size(); ++i) CHECK(std::abs(d[i] - d_alone[i]) <= error);
}

template <class T>
void check_singular_vectors(test::Rng& rng, int64_t m, int64_t n, Kind kind) {
  CAPTURE(m, n, static_cast<int>(kind), sizeof(T));
  Buffer<T> given = buffer_of<T>(random_matrix<T>(rng, m, n, kind));
  const Matrix a = matrix_of(given);
  const int64_t k = std::min(m, n);

  Buffer<RealOf<T>> values({k}), again({k}), alone({k});
  Buffer<T> u({m, m}), vh({n, n}), u_again({m, m}), vh_again({n, n}), none({0});
  auto decompose = [&](bool vectors, int threads, const std::vector<Tensor>& results) {
    std::vector<test::Argument> args = {{"A", given}, {"full_matrices", true}, {"compute_uv", vectors}};
    REQUIRE(test::call("aten._linalg_svd.default", args, results, threads).ok());
  };
  decompose(true, 1, {u.tensor(), values.tensor(), vh.tensor()});
  decompose(true, 3, {u_again.tensor(), again.tensor(), vh_again.tensor()});
  decompose(false, 1, {none.tensor(), alone.tensor(), none.tensor()});
  CHECK(same_bits(values, again));
  CHECK(same_bits(u, u_again));
  CHECK(same_bits(vh, vh_again));

  const Matrix left = matrix_of(u), right = adjoint(matrix_of(vh));
  const std::vector<double> d = numbers_of(values), d_alone = numbers_of(alone), ones(d.size(), 1.0);
  const double error = rounding<T>(std::max(m, n)) * largest(a);
  CHECK(distance(product(a, scaled(right, ones)), scaled(left, d)) <= error);
  CHECK(distance(product(adjoint(left), left), identity(m)) <= rounding<T>(m));
  CHECK(distance(product(adjoint(right), right), identity(n)) <= rounding<T>(n));
  CHECK(std::is_sorted(d.rbegin(), d.rend()));
  CHECK(d.back() >= 0);
  for (size_t i = 0; i < d.size(); ++i) CHECK(std::abs(d[i] - d_alone[i]) <= error);
}

constexpr Kind kKinds[] = {Kind::full,         Kind::ones,   Kind::sparse, Kind::low_rank,
                           Kind::equal_values, Kind::graded, Kind::tiny,   Kind::huge};

}  // namespace

TEST_CASE("eigenvectors of matrices of several panels are what defines them") {
  test::Rng rng(31);
  for (int64_t n : {1, 31, 32, 33, 34, 65, 97}) {
    const Kind kind = rng.pick(kKinds);
    check_eigenvectors<double>(rng, n, kind);
    check_eigenvectors<float>(rng, n, kind);
    check_eigenvectors<C128>(rng, n, kind);
    check_eigenvectors<C64>(rng, n, kind);
  }
  for (Kind kind : kKinds) check_eigenvectors<double>(rng, 130, kind);
}

TEST_CASE("singular vectors of tall and wide matrices are what defines them") {
  test::Rng rng(32);
  for (int64_t n : {1, 33, 64, 66, 90}) {
    const Kind kind = rng.pick(kKinds);
    const int64_t other = n + rng.between(-static_cast<int64_t>(n) / 2, n / 2);
    check_singular_vectors<double>(rng, n, other, kind);
    check_singular_vectors<float>(rng, other, n, kind);
    check_singular_vectors<C128>(rng, n, other, kind);
    check_singular_vectors<C64>(rng, other, n, kind);
  }
  for (Kind kind : kKinds) {
    check_singular_vectors<double>(rng, 33, 70, kind);
    check_singular_vectors<double>(rng, 100, 90, kind);
  }
}
