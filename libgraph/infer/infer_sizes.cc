// Sizes: facts about numbers that stand for sizes. Strides: infer_strides.cc.
#include "libgraph/infer/infer_sizes.h"

#include <algorithm>

namespace sg {
namespace {

constexpr int kMaxDepth = 32;  // of nested floordiv, mod, min, max that bounds and rewriting look into
// Limits on solving guards: longer ones are skipped, as are solutions that need more rounds of substitution.
constexpr size_t kMaxSolvedTerms = 64;
constexpr int kMaxRounds = 16;
constexpr size_t kMaxProducts = 64;

using Bound = std::optional<int64_t>;

Bound checked_add(Bound a, Bound b) {
  int64_t sum;
  if (!a || !b || __builtin_add_overflow(*a, *b, &sum)) return std::nullopt;
  return sum;
}

Bound checked_mul(Bound a, Bound b) {
  int64_t product;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &product)) return std::nullopt;
  return product;
}

// A single number for an unordered pair of expressions.
uint64_t pair_of(Expr a, Expr b) { return (uint64_t{std::min(a.index, b.index)} << 32) | std::max(a.index, b.index); }

}  // namespace

void Sizes::learn() {
  if (learned_ || program_ == nullptr) return;
  learned_ = true;
  for (const Guard& g : program_->guards)
    if (g.relation == Relation::eq) equal_.insert(pair_of(g.left, g.right));
}

const Symbol* Sizes::symbol(StrId name) { return program_ == nullptr ? nullptr : program_->find_symbol(name); }

Bound Sizes::symbol_bound(StrId name, bool is_upper) {
  const Symbol* s = symbol(name);
  if (is_upper) return s == nullptr ? std::nullopt : s->max;
  // A data-dependent number used as a size is at least 0, as PyTorch assumes.
  if (s == nullptr || !s->min) return 0;
  return std::max<int64_t>(*s->min, 0);
}

Bound Sizes::atom_bound(const Atom& atom, bool is_upper, int depth) {
  const std::vector<Expr> operands = atom.operands;
  switch (atom.kind) {
    case AtomKind::symbol: return symbol_bound(atom.symbol, is_upper);
    case AtomKind::floordiv: {
      Bound divisor = exprs_.constant_value(operands[1]);
      Bound value = bound(operands[0], is_upper, depth + 1);
      if (!divisor || *divisor <= 0 || !value) return std::nullopt;
      return *value >= 0 ? *value / *divisor : -((-(*value + 1)) / *divisor) - 1;
    }
    case AtomKind::mod: {
      Bound divisor = exprs_.constant_value(operands[1]);
      if (!divisor || *divisor <= 0) return std::nullopt;
      return is_upper ? *divisor - 1 : 0;
    }
    case AtomKind::min:
    case AtomKind::max: break;
  }
  // For max, any lower bound will do (the best counts), but every upper bound is needed; for min the reverse.
  bool any_will_do = (atom.kind == AtomKind::max) != is_upper;
  Bound best;
  for (Expr operand : operands) {
    Bound b = bound(operand, is_upper, depth + 1);
    if (!b && any_will_do) continue;
    if (!b) return std::nullopt;
    best = !best ? b : (atom.kind == AtomKind::max) ? std::max(*best, *b) : std::min(*best, *b);
  }
  return best;
}

Bound Sizes::bound(Expr e, bool is_upper, int depth) {
  if (auto value = exprs_.constant_value(e)) return value;
  if (exprs_.is_invalid(e) || depth > kMaxDepth) return std::nullopt;
  auto span = exprs_.terms(e);
  const std::vector<Term> terms(span.begin(), span.end());
  Bound sum = 0;
  for (const Term& term : terms) {
    bool factor_upper = (term.coefficient > 0) == is_upper;
    Bound product = term.coefficient;
    for (const Factor& factor : term.factors) {
      const Atom atom = exprs_.atom(factor.atom);
      Bound low = atom_bound(atom, false, depth);
      if (!low || *low < 0) return std::nullopt;  // would need a case distinction by signs
      Bound value = factor_upper ? atom_bound(atom, true, depth) : low;
      if (factor.power > 64 && value && *value > 1) return std::nullopt;
      for (uint32_t i = 0; i < std::min(factor.power, 64u); ++i) product = checked_mul(product, value);
    }
    sum = checked_add(sum, product);
    if (!sum) return std::nullopt;
  }
  return sum;
}

Expr Sizes::strip_atom(uint32_t index, int depth) {
  const Atom atom = exprs_.atom(index);
  if (atom.kind == AtomKind::symbol) return exprs_.symbol(atom.symbol);
  Exprs operands;
  for (Expr operand : atom.operands) operands.push_back(strip(operand, depth + 1));
  if (atom.kind == AtomKind::floordiv) return exprs_.floordiv(operands[0], operands[1]);
  if (atom.kind == AtomKind::mod) return exprs_.mod(operands[0], operands[1]);
  if (atom.kind == AtomKind::max && operands.size() == 2 && is(operands[0], 1)) return operands[1];
  if (atom.kind == AtomKind::max && operands.size() == 2 && is(operands[1], 1)) return operands[0];
  Expr result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i)
    result = atom.kind == AtomKind::max ? exprs_.max(result, operands[i]) : exprs_.min(result, operands[i]);
  return result;
}

Expr Sizes::strip(Expr e, int depth) {
  if (exprs_.is_invalid(e) || exprs_.is_constant(e) || depth > kMaxDepth) return e;
  if (auto it = stripped_.find(e); it != stripped_.end()) return it->second;
  auto span = exprs_.terms(e);
  const std::vector<Term> terms(span.begin(), span.end());
  Expr sum = number(0);
  for (const Term& term : terms) {
    Expr product = number(term.coefficient);
    for (const Factor& factor : term.factors)
      product = exprs_.mul(product, exprs_.pow(strip_atom(factor.atom, depth), factor.power));
    sum = exprs_.add(sum, product);
  }
  stripped_.emplace(e, sum);
  return sum;
}

bool Sizes::guarded_equal(Expr a, Expr b) {
  learn();
  return equal_.contains(pair_of(a, b));
}

Expr Sizes::solved(Expr e) {
  auto find = [&](StrId name) -> std::optional<Expr> {
    auto it = solutions_.find(name);
    return it == solutions_.end() ? std::nullopt : std::optional<Expr>(it->second);
  };
  for (int round = 0; round < kMaxRounds; ++round) {
    Expr next = exprs_.substitute(e, find);
    if (next == e) break;
    e = next;
  }
  return e;
}

// u0 + u1 == 20 determines u0: each equality, after substituting earlier solutions, gives one of its symbols.
void Sizes::solve() {
  if (solved_all_ || program_ == nullptr) return;
  solved_all_ = true;
  for (const Guard& g : program_->guards) {
    if (g.relation != Relation::eq) continue;
    const bool is_left = exprs_.is_constant(g.right);
    const Expr product = is_left ? g.left : g.right, count = is_left ? g.right : g.left;
    if (exprs_.constant_value(count).value_or(0) > 0 && products_.size() < kMaxProducts)
      products_.emplace_back(strip(product), count);
    Expr zero = solved(exprs_.sub(g.left, g.right));
    if (exprs_.is_invalid(zero) || exprs_.terms(zero).size() > kMaxSolvedTerms) continue;
    auto span = exprs_.terms(zero);
    for (const Term& term : std::vector<Term>(span.begin(), span.end())) {
      bool is_plain = term.factors.size() == 1 && term.factors[0].power == 1 && std::abs(term.coefficient) == 1;
      if (!is_plain || exprs_.atom(term.factors[0].atom).kind != AtomKind::symbol) continue;
      StrId name = exprs_.atom(term.factors[0].atom).symbol;
      Expr rest = exprs_.sub(zero, exprs_.mul(number(term.coefficient), exprs_.symbol(name)));
      if (exprs_.is_invalid(rest) || exprs_.mentions(rest, name)) continue;
      solutions_.emplace(name, term.coefficient > 0 ? exprs_.neg(rest) : rest);
      break;
    }
  }
}

bool Sizes::implied_equal(Expr a, Expr b) {
  if (exprs_.is_invalid(a) || exprs_.is_invalid(b)) return false;
  solve();
  Expr x = solved(strip(a)), y = solved(strip(b));
  if (exprs_.is_invalid(x) || exprs_.is_invalid(y)) return false;
  if (x == y) return true;
  // Where a guard says p == n, multiples of p are those of n: x * n == y * p, and n is not 0.
  const auto is_equal = [&](Expr one, Expr other) { return one == other && !exprs_.is_invalid(one); };
  const auto is_by = [&](const std::pair<Expr, Expr>& p) {
    return is_equal(exprs_.mul(x, p.second), exprs_.mul(y, p.first)) ||
           is_equal(exprs_.mul(x, p.first), exprs_.mul(y, p.second));
  };
  return std::ranges::any_of(products_, is_by);
}

bool Sizes::same(Expr a, Expr b) {
  if (exprs_.is_invalid(a) || exprs_.is_invalid(b)) return false;
  if (a == b) return true;
  if (exprs_.is_constant(a) && exprs_.is_constant(b)) return false;
  return strip(a) == strip(b) || guarded_equal(a, b);
}

bool Sizes::same(const Exprs& a, const Exprs& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](Expr x, Expr y) { return same(x, y); });
}

int Sizes::compare(Expr a, Expr b) {
  auto x = constant(a), y = constant(b);
  if (x && y) return *x < *y ? -1 : *x > *y ? 1 : 0;
  if (a == b || exprs_.is_invalid(a) || exprs_.is_invalid(b)) return 0;
  if (lower(exprs_.sub(a, b)).value_or(0) > 0) return 1;
  if (lower(exprs_.sub(b, a)).value_or(0) > 0) return -1;
  auto is_multiple = [&](Expr large, Expr small) {
    if (is(small, 0)) return false;
    if (is(small, 1)) return lower(large).value_or(-1) >= 0;  // also of what the data decides, and may be 0
    Expr q = exprs_.floordiv(large, small);
    return !exprs_.is_invalid(q) && exprs_.mul(q, small) == large && lower(q).value_or(0) >= 1;
  };
  if (is_multiple(a, b)) return 1;
  return is_multiple(b, a) ? -1 : compare_at_capture(a, b);
}

bool Sizes::is_less(Expr a, Expr b) { return upper(exprs_.sub(a, b)).value_or(0) < 0 || compare_at_capture(a, b) < 0; }

// As PyTorch does with sizes of inputs: compares their values at capture (and PyTorch guards on it).
int Sizes::compare_at_capture(Expr a, Expr b) {
  Bound x = at_capture(a), y = at_capture(b);
  return !x || !y || *x == *y ? 0 : *x < *y ? -1 : 1;
}

// The value at capture; none if it depends on data.
Bound Sizes::at_capture(Expr e) {
  return exprs_.evaluate(e, [&](StrId name) -> Bound {
    const Symbol* s = symbol(name);
    return s == nullptr || s->kind == SymbolKind::data ? std::nullopt : s->hint;
  });
}

Expr Sizes::at_least_one(Expr e) {
  if (auto value = constant(e)) return *value >= 1 ? e : number(1);
  if (auto it = at_least_one_.find(e); it != at_least_one_.end()) return it->second;
  // PyTorch drops the maximum only for sizes that had a value at capture, whatever their range.
  bool positive = lower(e).value_or(0) >= 1 && !has_unbacked(e);
  Expr result = positive ? e : exprs_.max(number(1), e);
  at_least_one_.emplace(e, result);
  return result;
}

// Whether a symbol had no value at capture: PyTorch assumes nothing about such a symbol.
bool Sizes::has_unbacked(Expr e) {
  std::vector<StrId> names;
  exprs_.collect_symbols(e, &names);
  return std::any_of(names.begin(), names.end(), [&](StrId name) {
    const Symbol* s = symbol(name);
    return s == nullptr || s->kind == SymbolKind::data || !s->hint;
  });
}

Expr Sizes::at_least_zero(Expr e) {
  return lower(e).value_or(-1) >= 0 || !has_unbacked(e) ? e : exprs_.max(number(0), e);
}

Expr Sizes::count(const Exprs& shape) {
  Expr n = number(1);
  for (Expr size : shape) n = exprs_.mul(n, size);
  return n;
}

std::optional<Exprs> Sizes::broadcast(const Exprs& a, const Exprs& b) {
  size_t rank = std::max(a.size(), b.size());
  Exprs shape(rank);
  for (size_t i = 0; i < rank; ++i) {  // from the last dimension
    Expr& size = shape[rank - 1 - i];
    if (i >= a.size() || i >= b.size()) {
      size = i < a.size() ? a[a.size() - 1 - i] : b[b.size() - 1 - i];
      continue;
    }
    Expr x = a[a.size() - 1 - i], y = b[b.size() - 1 - i];
    auto x_known = constant(x), y_known = constant(y);
    if (x_known && y_known && *x_known != *y_known && *x_known != 1 && *y_known != 1) return std::nullopt;
    size = is(x, 1) ? y : x;  // sizes that may be equal must be: the first one's spelling is kept
  }
  return shape;
}

}  // namespace sg
