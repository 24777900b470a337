// Sizes: arithmetic on symbolic shapes and strides as PyTorch does it, for the inference rules.
//
// Where the value of a symbol decides (is this dimension 1? is this stride the larger one?) and nothing is known, the
// answer is the one that PyTorch's tracing gives. Of sizes of inputs: which stride was the larger one at capture. Of
// data-dependent sizes: not 1, not equal, not larger.
#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "libgraph/job.h"

namespace sg {

using Exprs = std::vector<Expr>;

class Sizes {
 public:
  Sizes(Pool* pool, const Program* program) : exprs_(pool->exprs), program_(program) {}

  ExprPool& exprs() { return exprs_; }
  Expr number(int64_t value) { return exprs_.constant(value); }
  std::optional<int64_t> constant(Expr e) const { return exprs_.constant_value(e); }
  bool is(Expr e, int64_t value) const { return exprs_.constant_value(e) == value; }

  // A bound that holds for all values of the symbols; none when there is none that is easy to see.
  std::optional<int64_t> lower(Expr e) { return bound(e, false, 0); }
  std::optional<int64_t> upper(Expr e) { return bound(e, true, 0); }

  bool same(Expr a, Expr b);  // equal wherever no size is 0, or by a guard
  bool same(const Exprs& a, const Exprs& b);
  int compare(Expr a, Expr b);     // -1, 1, or 0 for equal or unknown
  bool is_less(Expr a, Expr b);    // for all values of the symbols, else at capture, if all had a value there
  Expr at_least_one(Expr e);       // max(1, e), or e itself when it is a known positive size
  Expr at_least_zero(Expr e);      // max(0, e) where the data decides it and may make it negative, else e
  Expr count(const Exprs& shape);  // number of elements

  Exprs contiguous(const Exprs& shape);  // row-major strides, empty dimensions counted as 1
  bool is_contiguous(const Type& t);
  Exprs channels_last(const Exprs& shape);  // [batch, height, width, channels] in memory. REQUIRES: 4 or 5 dimensions
  bool is_dense_channels_last(const Type& t);  // these, whatever the strides of axes of size 1 are
  bool is_dense(const Type& t);                // some permutation of contiguous: no gaps, no overlap
  // The strides of `t` if it is dense, else dense ones in the order of its own: what preserve_format means.
  Exprs preserved(const Type& t);
  // Dense strides over `shape` whose dimensions are ordered as those of `like`; `empty_as_one` says whether an unknown
  // size enters them as max(1, size). REQUIRES: equal rank
  Exprs in_order_of(const Type& like, const Exprs& shape, bool empty_as_one = true);
  // Dense strides over `shape` whose order follows the operands, as PyTorch's elementwise kernels choose it.
  Exprs elementwise(const Exprs& shape, const std::vector<const Type*>& operands);

  // The shape that both broadcast to; none when they contradict each other.
  std::optional<Exprs> broadcast(const Exprs& a, const Exprs& b);
  std::optional<Exprs> expand_strides(const Type& t, const Exprs& shape);

  // Strides under which `t` can be seen as `shape` without a copy; none when it cannot.
  std::optional<Exprs> view_strides(const Type& t, const Exprs& shape);

 private:
  std::optional<int64_t> bound(Expr e, bool is_upper, int depth);
  std::optional<int64_t> atom_bound(const Atom& atom, bool is_upper, int depth);
  std::optional<int64_t> symbol_bound(StrId name, bool is_upper);
  const Symbol* symbol(StrId name);
  bool has_unbacked(Expr e);
  Expr strip(Expr e, int depth = 0);  // max(1, x) replaced by x
  Expr strip_atom(uint32_t index, int depth);
  int compare_at_capture(Expr a, Expr b);
  std::optional<int64_t> at_capture(Expr e);
  template <typename IsSame>
  std::optional<Exprs> view_strides_where(const Type& t, const Exprs& shape, IsSame&& is_same);
  bool guarded_equal(Expr a, Expr b);
  bool implied_equal(Expr a, Expr b);  // by all equalities of the guards together
  Expr solved(Expr e);
  void learn();
  void solve();
  std::vector<size_t> by_stride(const Type& t);
  int order(size_t a, size_t b, const Exprs& shape, const std::vector<Exprs>& strides);

  ExprPool& exprs_;
  const Program* program_;
  bool learned_ = false;                               // the next is filled when first asked for
  std::unordered_set<uint64_t> equal_;                 // pairs of expressions that a guard equates
  bool solved_all_ = false;                            // the next is filled when first asked for
  std::unordered_map<StrId, Expr, IdHash> solutions_;  // symbols, by what the guards say that they are
  std::vector<std::pair<Expr, Expr>> products_;        // what guards say is a positive number, and that
  std::unordered_map<Expr, Expr, IdHash> stripped_;
  std::unordered_map<Expr, Expr, IdHash> at_least_one_;
};

}  // namespace sg
