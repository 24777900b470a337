// Matrix functions, by the decompositions they are made of.
#include <algorithm>
#include <cmath>
#include <limits>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

constexpr int64_t kMaxPower = int64_t{1} << 32;
constexpr size_t kMaxChain = 64;  // more than a program writes down: the order takes the cube of it

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

void pinverse(CompositeCall& c) {
  const ValueId self = c.tensor("self");
  const double least = c.number("rcond");
  if (c.has("hermitian") && c.flag("hermitian")) {
    Values parts = c.make_all("_linalg_eigh", {self, c.word("L"), true});
    ValueId size = c.make("abs", {parts[0]});
    ValueId bound = c.make("mul.Scalar", {c.make("amax", {size, Numbers{-1}, true}), least});
    ValueId inverse = inverse_above(c, parts[0], size, bound);
    return c.give(c.make("matmul", {times_rows(c, parts[1], inverse), adjoint(c, parts[1])}));
  }
  Values parts = c.make_all("_linalg_svd", {self, false, true});
  ValueId bound = c.make("mul.Scalar", {c.make("slice.Tensor", {parts[1], -1, 0, 1}), least});
  ValueId inverse = inverse_above(c, parts[1], parts[1], bound);
  c.give(c.make("matmul", {times_rows(c, adjoint(c, parts[2]), inverse), adjoint(c, parts[0])}));
}

namespace {

ValueId in_asked_type(CompositeCall& c, ValueId self) {
  const auto dtype = c.dtype("dtype");
  return dtype ? c.make("_to_copy", {self, c.key("dtype", *dtype)}) : self;
}

// Singular values of the matrices along two dimensions, reduced to one number each: "amax", "amin" or
// "sum.dim_IntList".
ValueId by_singular_values(CompositeCall& c, ValueId self, const Numbers& dims, bool keeps, std::string_view reduce) {
  Numbers order;
  for (int64_t d = 0; d < c.rank(self); ++d)
    if (d != dims[0] && d != dims[1]) order.push_back(d);
  order.insert(order.end(), dims.begin(), dims.end());
  const bool is_last = std::is_sorted(order.begin(), order.end());
  ValueId matrices = is_last ? self : c.make("permute", {self, order});
  ValueId values = c.make_all("_linalg_svd", {matrices, false, false})[1];
  ValueId out = c.make(reduce, {values, Numbers{-1}, keeps});
  if (!keeps) return out;
  out = c.make("unsqueeze", {out, -1});
  if (is_last) return out;
  Numbers back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return c.make("permute", {out, back});
}

// The largest (or smallest) sum of magnitudes, along dims[0], over dims[1].
ValueId by_sums(CompositeCall& c, ValueId self, const Numbers& dims, bool keeps, bool largest) {
  ValueId sums = c.make("linalg_vector_norm", {self, 1, Numbers{dims[0]}, keeps});
  const int64_t rest = dims[1] - (!keeps && dims[0] < dims[1] ? 1 : 0);
  return c.make(largest ? "amax" : "amin", {sums, Numbers{rest}, keeps});
}

// The dimensions of matrices; empty: of vectors.
Numbers matrix_dims(CompositeCall& c, ValueId self, bool has_order) {
  Numbers dims = c.has("dim") ? c.integers("dim") : Numbers();
  if (dims.empty() && has_order && c.rank(self) == 2) dims = {0, 1};
  if (dims.size() != 2) return {};
  for (int64_t& d : dims) d = c.wrap(d, c.rank(self));
  return dims;
}

}  // namespace

void linalg_norm(CompositeCall& c) {
  const ValueId self = in_asked_type(c, c.tensor("self"));
  const bool has_order = c.has("ord"), keeps = c.flag("keepdim");
  const double order = has_order ? c.number("ord") : 2;
  const Numbers dims = has_order ? matrix_dims(c, self, true) : Numbers();
  if (c.failed()) return;
  if (dims.empty()) {
    const PartArg along = c.has("dim") ? PartArg(c.integers("dim")) : PartArg(ValueId());
    return c.give(c.make("linalg_vector_norm", {self, order, along, keeps}));
  }
  const bool largest = order > 0, is_endless = std::abs(order) == std::numeric_limits<double>::infinity();
  if (std::abs(order) == 2) return c.give(by_singular_values(c, self, dims, keeps, largest ? "amax" : "amin"));
  if (std::abs(order) == 1) return c.give(by_sums(c, self, dims, keeps, largest));
  if (is_endless) return c.give(by_sums(c, self, {dims[1], dims[0]}, keeps, largest));
  c.fail("there is no norm of matrices of that order");
}

void linalg_norm_by_name(CompositeCall& c) {
  const ValueId self = in_asked_type(c, c.tensor("self"));
  const std::string name = c.text("ord");
  const Numbers dims = matrix_dims(c, self, true);
  if (c.failed()) return;
  if (dims.empty()) return c.fail("a norm of matrices needs two dimensions");
  if (name == "fro") return c.give(c.make("linalg_vector_norm", {self, 2, dims, c.flag("keepdim")}));
  if (name == "nuc") return c.give(by_singular_values(c, self, dims, c.flag("keepdim"), "sum.dim_IntList"));
  c.fail("there is no norm `" + name + "`");
}

// By squares, as PyTorch goes.
void matrix_power(CompositeCall& c) {
  ValueId self = c.tensor("self");
  int64_t n = c.integer("n");
  if (c.failed()) return;
  if (n < -kMaxPower || n > kMaxPower) return c.fail("the power is too large");
  if (n == 0) {
    const Arg device = Arg::text(ArgKind::device, c.type(self).device);
    const ValueId one = c.make("eye", {c.size(self, -1), c.key("dtype", c.dtype_of(self)), c.key("device", device)});
    return c.give(c.make("clone", {c.make("expand", {one, c.shape(self)}), c.memory_format("contiguous_format")}));
  }
  if (n < 0) {
    Values parts = c.make_all("linalg_inv_ex", {self});
    check(c, parts[1], "linalg.inv");
    self = parts[0], n = -n;
  }
  if (n == 1) return c.give(c.make("clone", {self}));
  if (n == 3) return c.give(c.make("matmul", {c.make("matmul", {self, self}), self}));
  ValueId square = self, out;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) out = out.is_none() ? square : c.make("matmul", {out, square});
    if (n > 1) square = c.make("matmul", {square, square});
  }
  c.give(out);
}

void matrix_exp_by_name(CompositeCall& c) { c.give(c.make("linalg_matrix_exp", {c.tensor("self")})); }

namespace {

// Products of a chain of matrices in the order of fewest multiplications.
class ChainOrder {
 public:
  ChainOrder(CompositeCall& c, Values chain) : c_(c), chain_(std::move(chain)) {
    for (ValueId v : chain_) sizes_.push_back(c_.known_size(v, 0));
    sizes_.push_back(c_.known_size(chain_.back(), 1));
  }

  ValueId product() {
    const size_t n = chain_.size();
    best_.assign(n * n, 0), split_.assign(n * n, 0);
    for (size_t length = 2; length <= n; ++length)
      for (size_t i = 0; i + length <= n; ++i) find_split(i, i + length - 1);
    if (n == 3 && cost(0, 0, 2) == cost(0, 1, 2)) split_[2] = 1;
    return multiply(0, n - 1);
  }

 private:
  double cost(size_t i, size_t k, size_t j) const {
    const auto size = [&](size_t at) { return static_cast<double>(sizes_[at]); };
    return best_[i * chain_.size() + k] + best_[(k + 1) * chain_.size() + j] + size(i) * size(k + 1) * size(j + 1);
  }
  void find_split(size_t i, size_t j) {
    const size_t at = i * chain_.size() + j;
    split_[at] = i;
    for (size_t k = i + 1; k < j; ++k)
      if (cost(i, k, j) < cost(i, split_[at], j)) split_[at] = k;
    best_[at] = cost(i, split_[at], j);
  }
  ValueId multiply(size_t i, size_t j) {
    if (i == j) return chain_[i];
    const size_t k = split_[i * chain_.size() + j];
    const ValueId left = multiply(i, k);
    return c_.make("mm", {left, multiply(k + 1, j)});
  }

  CompositeCall& c_;
  Values chain_;
  Numbers sizes_;
  std::vector<double> best_;
  std::vector<size_t> split_;
};

}  // namespace

// The first and the last may be vectors: a row and a column.
void multi_dot(CompositeCall& c) {
  Values chain = c.tensors(c.has("tensors") ? "tensors" : "matrices");
  if (c.failed()) return;
  if (chain.empty() || chain.size() > kMaxChain) return c.fail("too many matrices, or none");
  if (chain.size() == 1) return c.give(c.make("clone", {chain[0]}));
  const bool is_row = c.rank(chain[0]) == 1, is_column = c.rank(chain.back()) == 1;
  if (chain.size() == 2) return c.give(c.make("matmul", {chain[0], chain[1]}));
  if (is_row) chain[0] = c.make("unsqueeze", {chain[0], 0});
  if (is_column) chain.back() = c.make("unsqueeze", {chain.back(), 1});
  ValueId out = ChainOrder(c, std::move(chain)).product();
  if (c.failed()) return;
  if (is_column) out = c.make("squeeze.dim", {out, 1});
  if (is_row) out = c.make("squeeze.dim", {out, 0});
  c.give(out);
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

void svd(CompositeCall& c) {
  const ValueId self = c.tensor("self");
  if (!c.flag("compute_uv")) return c.fail("singular values alone beside tensors of zeros");
  Values parts = c.make_all("_linalg_svd", {self, !c.flag("some"), true});
  c.give(parts[0]), c.give(parts[1]), c.give(adjoint(c, parts[2]));
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
