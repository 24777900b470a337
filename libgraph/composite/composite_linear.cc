// Matrix functions, by the decompositions they are made of.
#include <algorithm>
#include <limits>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

// Fails the run, naming PyTorch's function, if the decomposition reports an error for a matrix.
void check(CompositeCall& c, ValueId info, std::string_view api) {
  c.make_all("_linalg_check_errors", {info, c.word(api), c.key("is_matrix", c.rank(info) == 0)});
}

ValueId adjoint(CompositeCall& c, ValueId v) {
  ValueId turned = c.make("transpose.int", {v, -2, -1});
  return is_complex(c.dtype_of(v)) ? c.make("_conj", {turned}) : turned;
}

// 1 / v where `size` is larger than `least`, else 0.
ValueId inverse_above(CompositeCall& c, ValueId v, ValueId size, ValueId least) {
  ValueId large = c.make("gt.Tensor", {size, least});
  return c.make("where.ScalarOther", {large, c.make("reciprocal", {v}), 0.0});
}

// The machine epsilon of an element type that is computed in.
double epsilon_of(DType t) { return t == DType::f64 || t == DType::c128 ? 0x1p-52 : 0x1p-23; }

// The bound below which a value counts as zero: the larger of atol and rtol times the largest value, each one number or
// one per matrix. Without rtol the relative bound is epsilon times the larger dimension, or 0 if atol is positive.
ValueId bound_of(CompositeCall& c, ValueId self, ValueId largest) {
  ValueId atol = c.tensor("atol"), rtol = c.tensor("rtol");
  auto column = [&](ValueId v) { return c.make("unsqueeze", {v, -1}); };
  ValueId relative;
  if (!rtol.is_none()) {
    relative = c.make("mul.Tensor", {column(rtol), largest});
  } else {
    const auto size = static_cast<double>(std::max(c.known_size(self, -2), c.known_size(self, -1)));
    relative = c.make("mul.Scalar", {largest, epsilon_of(c.dtype_of(self)) * size});
    if (!atol.is_none()) relative = c.make("where.ScalarSelf", {c.make("gt.Scalar", {column(atol), 0}), 0.0, relative});
  }
  return atol.is_none() ? relative : c.make("maximum", {column(atol), relative});
}

ValueId times_rows(CompositeCall& c, ValueId v, ValueId factors) {
  return c.make("mul.Tensor", {v, c.make("unsqueeze", {factors, -2})});
}

}  // namespace

void pinv(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (c.flag("hermitian")) {
    Values parts = c.make_all("_linalg_eigh", {self, c.word("L"), true});
    ValueId size = c.make("abs", {parts[0]}), largest = c.make("amax", {size, Numbers{-1}, true});
    ValueId inverse = inverse_above(c, parts[0], size, bound_of(c, self, largest));
    return c.give(c.make("matmul", {times_rows(c, parts[1], inverse), adjoint(c, parts[1])}));
  }
  Values parts = c.make_all("_linalg_svd", {self, false, true});
  ValueId largest = c.make("slice.Tensor", {parts[1], -1, 0, 1});
  ValueId inverse = inverse_above(c, parts[1], parts[1], bound_of(c, self, largest));
  c.give(c.make("matmul", {times_rows(c, adjoint(c, parts[2]), inverse), adjoint(c, parts[0])}));
}

void linalg_inv(CompositeCall& c) {
  Values parts = c.make_all("linalg_inv_ex", {c.tensor(c.has("A") ? "A" : "self")});
  check(c, parts[1], "linalg.inv");
  c.give(parts[0]);
}

void linalg_cholesky(CompositeCall& c) {
  Values parts = c.make_all("linalg_cholesky_ex", {c.tensor("self"), c.key("upper", c.flag("upper"))});
  check(c, parts[1], "linalg.cholesky");
  c.give(parts[0]);
}

void linalg_solve(CompositeCall& c) {
  Values parts = c.make_all("_linalg_solve_ex", {c.tensor("A"), c.tensor("B"), c.key("left", c.flag("left"))});
  check(c, parts[3], "torch.linalg.solve");
  c.give(parts[0]);
}

void linalg_lu_factor(CompositeCall& c) {
  Values parts = c.make_all("linalg_lu_factor_ex", {c.tensor("A"), c.key("pivot", c.flag("pivot"))});
  check(c, parts[2], "torch.linalg.lu_factor");
  c.give(parts[0]);
  c.give(parts[1]);
}

void linalg_det(CompositeCall& c) { c.give(c.make("_linalg_det", {c.tensor(c.has("A") ? "A" : "self")})); }

void linalg_slogdet(CompositeCall& c) {
  Values parts = c.make_all("_linalg_slogdet", {c.tensor(c.has("A") ? "A" : "self")});
  c.give(parts[0]);
  c.give(parts[1]);
}

// NaN where the determinant is negative.
void logdet(CompositeCall& c) {
  Values parts = c.make_all("_linalg_slogdet", {c.tensor("self")});
  if (is_complex(c.dtype_of(parts[0]))) return c.give(c.make("add.Tensor", {c.make("log", {parts[0]}), parts[1]}));
  ValueId negative = c.make("eq.Scalar", {parts[0], -1});
  c.give(c.make("where.ScalarSelf", {negative, std::numeric_limits<double>::quiet_NaN(), parts[1]}));
}

void linalg_eigh(CompositeCall& c) {
  for (ValueId v : c.make_all("_linalg_eigh", {c.tensor("self"), c.arg("UPLO"), true})) c.give(v);
}

void linalg_eigvalsh(CompositeCall& c) { c.give(c.make("_linalg_eigh", {c.tensor("self"), c.arg("UPLO"), false})); }

void linalg_svd(CompositeCall& c) {
  for (ValueId v : c.make_all("_linalg_svd", {c.tensor("A"), c.flag("full_matrices"), true})) c.give(v);
}

void linalg_svdvals(CompositeCall& c) { c.give(c.make_all("_linalg_svd", {c.tensor("A"), false, false})[1]); }

void linalg_polar(CompositeCall& c) {
  ValueId self = c.tensor("A");
  if (c.known_size(self, -2) < c.known_size(self, -1)) return c.fail("needs as many rows as columns at least");
  Values parts = c.make_all("_linalg_svd", {self, false, true});
  c.give(c.make("matmul", {parts[0], parts[2]}));
  c.give(c.make("matmul", {times_rows(c, adjoint(c, parts[2]), parts[1]), parts[2]}));
}

// Eigenvalues below 0 count as 0.
void linalg_matrix_sqrth(CompositeCall& c) {
  Values parts = c.make_all("_linalg_eigh", {c.tensor("self"), c.word("L"), true});
  ValueId root = c.make("sqrt", {c.make("clamp_min", {parts[0], 0})});
  c.give(c.make("matmul", {times_rows(c, parts[1], root), adjoint(c, parts[1])}));
}

}  // namespace sg::composite
