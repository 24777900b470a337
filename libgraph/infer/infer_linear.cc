// Linear systems and matrix decompositions. PyTorch's CPU library wants matrices by columns (Fortran order), and most
// results are stored that way.
#include <algorithm>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

bool unequal(const InferCall& c, Expr a, Expr b) { return !c.may_equal(a, b); }

Expr rows_of(const Type& t) { return t.shape[t.shape.size() - 2]; }
Expr columns_of(const Type& t) { return t.shape.back(); }

// A matrix or a batch of matrices.
Result<const Type*> matrices(InferCall& c, std::string_view name) {
  SG_ASSIGN(const Type* t, c.tensor(name));
  if (t->shape.size() < 2) return c.fail("'" + std::string(name) + "' needs at least 2 dimensions");
  bool has_kernels =
      t->dtype == DType::f32 || t->dtype == DType::f64 || t->dtype == DType::c64 || t->dtype == DType::c128;
  if (!has_kernels) return c.fail("'" + std::string(name) + "' has to be of f32, f64, c64 or c128");
  return t;
}

Result<const Type*> square(InferCall& c, std::string_view name) {
  SG_ASSIGN(const Type* t, matrices(c, name));
  if (unequal(c, rows_of(*t), columns_of(*t))) return c.fail("'" + std::string(name) + "' is not square");
  return t;
}

Status same_elements(InferCall& c, const Type& a, const Type& b) {
  return a.dtype == b.dtype ? ok_status() : c.fail("the element types differ");
}

Exprs batch_of(const Type& t, size_t last = 2) {
  return Exprs(t.shape.begin(), t.shape.end() - static_cast<std::ptrdiff_t>(last));
}

Exprs with(Exprs batch, std::initializer_list<Expr> more) {
  batch.insert(batch.end(), more);
  return batch;
}

// The smaller of two sizes.
Expr least_of(InferCall& c, Expr a, Expr b) { return a == b ? a : c.sizes.exprs().min(a, b); }

Status give_by_columns(InferCall& c, DType dtype, Exprs shape, const Type& like) {
  const size_t n = shape.size();
  if (n < 2) return c.give_contiguous(dtype, std::move(shape), like);
  std::swap(shape[n - 1], shape[n - 2]);  // the storage order
  Exprs stride = c.sizes.contiguous(shape);
  std::swap(shape[n - 1], shape[n - 2]), std::swap(stride[n - 1], stride[n - 2]);
  return c.give(dtype, std::move(shape), std::move(stride), like);
}

Status give_nothing(InferCall& c, const Type& like) { return c.give_contiguous(like.dtype, {c.sizes.number(0)}, like); }

Status give_pivots(InferCall& c, const Type& of) {
  return c.give_contiguous(DType::i32, with(batch_of(of), {least_of(c, rows_of(of), columns_of(of))}), of);
}
Status give_infos(InferCall& c, const Type& of) { return c.give_contiguous(DType::i32, batch_of(of), of); }

// The batch sizes that matrices and right-hand sides broadcast to.
Result<Exprs> common_batch(InferCall& c, const Type& a, const Exprs& of_right) {
  auto batch = c.sizes.broadcast(batch_of(a), of_right);
  if (!batch) return c.fail("the batch sizes do not broadcast");
  return *batch;
}

// Right-hand sides of a square system need as many rows as the matrix (as many columns, if they are on its left).
Status give_solution(InferCall& c, const Type& a, const Type& b, bool left) {
  if (unequal(c, left ? rows_of(b) : columns_of(b), rows_of(a)))
    return c.fail("the right side does not fit the matrix");
  SG_TRY(same_elements(c, a, b));
  SG_ASSIGN(Exprs batch, common_batch(c, a, batch_of(b)));
  Exprs shape = with(std::move(batch), {rows_of(b), columns_of(b)});
  return left ? give_by_columns(c, b.dtype, std::move(shape), b) : c.give_contiguous(b.dtype, std::move(shape), b);
}

Status expect_pivots(InferCall& c, std::string_view name, const Type& of) {
  SG_ASSIGN(const Type* pivots, c.tensor(name));
  if (pivots->dtype != DType::i32) return c.fail("'" + std::string(name) + "' has to be of i32");
  return c.expect_shape(name, with(batch_of(of), {least_of(c, rows_of(of), columns_of(of))}));
}

// P, L and U, which are row-major.
Status give_factors(InferCall& c, const Type& a, bool permutation, bool factors) {
  const Expr m = rows_of(a), n = columns_of(a), k = least_of(c, m, n);
  SG_TRY(permutation ? c.give_contiguous(a.dtype, with(batch_of(a), {m, m}), a) : give_nothing(c, a));
  if (!factors) {
    SG_TRY(give_nothing(c, a));
    return give_nothing(c, a);
  }
  SG_TRY(c.give_contiguous(a.dtype, with(batch_of(a), {m, k}), a));
  return c.give_contiguous(a.dtype, with(batch_of(a), {k, n}), a);
}

// Reflection vectors and their factors (tau): at most as many factors as a vector has elements.
Status expect_reflections(InferCall& c, const Type& vectors, std::string_view tau_name) {
  SG_ASSIGN(const Type* tau, c.tensor(tau_name));
  const std::string name(tau_name);
  if (tau->shape.size() + 1 != vectors.shape.size()) return c.fail("'" + name + "' has to have a dimension less");
  SG_TRY(same_elements(c, vectors, *tau));
  for (size_t i = 0; i + 1 < tau->shape.size(); ++i)
    if (unequal(c, tau->shape[i], vectors.shape[i])) return c.fail("'" + name + "' is of another batch size");
  auto count = c.sizes.constant(tau->shape.back());
  for (Expr size : {rows_of(vectors), columns_of(vectors)}) {
    auto most = c.sizes.constant(size);
    if (count && most && *count > *most) return c.fail("'" + name + "' has more numbers than there are vectors");
  }
  return ok_status();
}

}  // namespace

// --- factorisations ---

Status cholesky_ex(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "self"));
  SG_TRY(give_by_columns(c, a->dtype, a->shape, *a));
  return give_infos(c, *a);
}

Status lu_factor_ex(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "A"));
  SG_TRY(give_by_columns(c, a->dtype, a->shape, *a));
  SG_TRY(give_pivots(c, *a));
  return give_infos(c, *a);
}

Status lu_parts(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "A"));
  SG_ASSIGN(bool pivot, c.boolean("pivot"));
  return give_factors(c, *a, pivot, true);
}

Status lu_unpack(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "LU_data"));
  SG_ASSIGN(bool factors, c.boolean("unpack_data"));
  SG_ASSIGN(bool permutation, c.boolean("unpack_pivots"));
  SG_TRY(expect_pivots(c, "LU_pivots", *a));
  return give_factors(c, *a, permutation, factors);
}

Status det(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "A"));
  SG_TRY(c.give_contiguous(a->dtype, batch_of(*a), *a));
  if (c.op.results.size() == 4)  // the sign, then the logarithm
    SG_TRY(c.give_contiguous(real_part(a->dtype), batch_of(*a), *a));
  SG_TRY(give_by_columns(c, a->dtype, a->shape, *a));
  return give_pivots(c, *a);
}

Status inv_ex(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "A"));
  SG_TRY(give_by_columns(c, a->dtype, a->shape, *a));
  return give_infos(c, *a);
}

Status qr(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "A"));
  const std::string_view mode = c.given("mode") ? c.text("mode") : "reduced";
  if (mode != "reduced" && mode != "complete" && mode != "r")
    return c.fail("'mode' has to be one of reduced, complete, r");
  const Expr m = rows_of(*a), n = columns_of(*a), k = mode == "complete" ? m : least_of(c, m, n);
  SG_TRY(mode == "r" ? give_nothing(c, *a) : give_by_columns(c, a->dtype, with(batch_of(*a), {m, k}), *a));
  return give_by_columns(c, a->dtype, with(batch_of(*a), {k, n}), *a);
}

Status geqrf(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "self"));
  SG_TRY(give_by_columns(c, a->dtype, a->shape, *a));
  return c.give_contiguous(a->dtype, with(batch_of(*a), {least_of(c, rows_of(*a), columns_of(*a))}), *a);
}

Status householder_product(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "input"));
  auto m = c.sizes.constant(rows_of(*a)), n = c.sizes.constant(columns_of(*a));
  if (m && n && *m < *n) return c.fail("needs at least as many rows as columns");
  SG_TRY(expect_reflections(c, *a, "tau"));
  return give_by_columns(c, a->dtype, a->shape, *a);
}

Status ormqr(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "self"));
  SG_ASSIGN(const Type* other, matrices(c, "input3"));
  SG_ASSIGN(bool left, c.boolean("left"));
  SG_TRY(expect_reflections(c, *a, "input2"));
  SG_TRY(same_elements(c, *a, *other));
  if (other->shape.size() != a->shape.size()) return c.fail("the tensors have different numbers of dimensions");
  for (size_t i = 0; i + 2 < a->shape.size(); ++i)
    if (unequal(c, a->shape[i], other->shape[i])) return c.fail("the batch sizes differ");
  if (unequal(c, left ? rows_of(*other) : columns_of(*other), rows_of(*a)))
    return c.fail("'input3' does not fit the reflections");
  return give_by_columns(c, a->dtype, other->shape, *a);
}

Status check_errors(InferCall& c) {
  SG_ASSIGN(const Type* info, c.tensor("info"));
  return info->dtype == DType::i32 ? ok_status() : c.fail("'info' has to be of i32");
}

// --- systems ---

Status solve_triangular(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "self"));
  SG_ASSIGN(const Type* b, matrices(c, "B"));
  SG_ASSIGN(bool left, c.boolean("left"));
  SG_TRY(give_solution(c, *a, *b, left));
  Exprs shape = c.results.back().shape;
  c.results.clear();
  return give_by_columns(c, b->dtype, std::move(shape), *b);
}

Status triangular_solve(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "A"));
  SG_ASSIGN(const Type* b, matrices(c, "self"));
  SG_TRY(give_solution(c, *a, *b, true));
  SG_ASSIGN(Exprs batch, common_batch(c, *a, batch_of(*b)));
  return give_by_columns(c, a->dtype, with(std::move(batch), {rows_of(*a), columns_of(*a)}), *a);
}

Status cholesky_solve(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "input2"));
  SG_ASSIGN(const Type* b, matrices(c, "self"));
  return give_solution(c, *a, *b, true);
}

Status cholesky_inverse(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "self"));
  return give_by_columns(c, a->dtype, a->shape, *a);
}

Status lu_solve(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "LU"));
  SG_ASSIGN(const Type* b, matrices(c, "B"));
  SG_ASSIGN(bool left, c.boolean("left"));
  SG_TRY(expect_pivots(c, "pivots", *a));
  return give_solution(c, *a, *b, left);
}

namespace {

// Whether each matrix has a single right-hand side vector, by PyTorch's criterion: `b` is a vector, or the shape of the
// matrices' batch plus one dimension.
bool is_vector(InferCall& c, const Type& a, const Type& b) {
  if (b.shape.size() == 1) return true;
  return a.shape.size() == b.shape.size() + 1 &&
         std::ranges::equal(b.shape, batch_of(a, 1), [&](Expr x, Expr y) { return c.sizes.same(x, y); });
}

}  // namespace

Status solve_ex(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "A"));
  SG_ASSIGN(const Type* b, c.tensor("B"));
  SG_ASSIGN(bool left, c.boolean("left"));
  if (b->shape.empty()) return c.fail("'B' needs at least one dimension");
  if (is_vector(c, *a, *b)) {
    if (!left) return c.fail("a vector stands on the right");
    SG_TRY(same_elements(c, *a, *b));
    if (unequal(c, b->shape.back(), rows_of(*a))) return c.fail("the right side does not fit the matrix");
    SG_ASSIGN(Exprs batch, common_batch(c, *a, batch_of(*b, 1)));
    SG_TRY(give_by_columns(c, b->dtype, with(std::move(batch), {rows_of(*a)}), *b));
  } else {
    SG_TRY(give_solution(c, *a, *b, left));
  }
  SG_TRY(give_by_columns(c, a->dtype, a->shape, *a));
  SG_TRY(give_pivots(c, *a));
  return give_infos(c, *a);
}

// --- eigenvalues, singular values, exponentials ---

Status eigh(InferCall& c) {
  SG_ASSIGN(const Type* a, square(c, "A"));
  const std::string_view half = c.given("UPLO") ? c.text("UPLO") : "L";
  if (half != "L" && half != "U" && half != "l" && half != "u") return c.fail("'UPLO' has to be L or U");
  SG_TRY(c.give_contiguous(real_part(a->dtype), batch_of(*a, 1), *a));
  SG_ASSIGN(bool vectors, c.boolean("compute_v"));
  return vectors ? give_by_columns(c, a->dtype, a->shape, *a) : give_nothing(c, *a);
}

Status svd(InferCall& c) {
  SG_ASSIGN(const Type* a, matrices(c, "A"));
  SG_ASSIGN(bool full, c.boolean("full_matrices"));
  SG_ASSIGN(bool vectors, c.boolean("compute_uv"));
  const Expr m = rows_of(*a), n = columns_of(*a), k = least_of(c, m, n);
  SG_TRY(vectors ? give_by_columns(c, a->dtype, with(batch_of(*a), {m, full ? m : k}), *a) : give_nothing(c, *a));
  SG_TRY(c.give_contiguous(real_part(a->dtype), with(batch_of(*a), {k}), *a));
  return vectors ? give_by_columns(c, a->dtype, with(batch_of(*a), {full ? n : k, n}), *a) : give_nothing(c, *a);
}

Status matrix_exp(InferCall& c) {
  SG_ASSIGN(const Type* a, c.tensor("self"));
  if (a->shape.size() < 2) return c.fail("'self' needs at least 2 dimensions");
  if (unequal(c, rows_of(*a), columns_of(*a))) return c.fail("'self' is not square");
  if (!is_floating(a->dtype) && !is_complex(a->dtype)) return c.fail("needs a floating or complex element type");
  return c.give_contiguous(a->dtype, a->shape, *a);
}

}  // namespace sg::infer
