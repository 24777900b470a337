// The normal forms of floordiv, mod, min and max.
#include <algorithm>
#include <numeric>

#include "libgraph/base/checked.h"
#include "libgraph/expr/expr_builder.h"

namespace sg {

namespace {

constexpr size_t kMaxOperands = 256;  // of one min or max
constexpr size_t kMaxDividend = 256;  // terms that a divisor of several terms is tried on

uint64_t magnitude(int64_t v) { return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v); }

// The greatest common divisor of the coefficients and `g` (0 = none yet).
uint64_t content(std::span<const Term> terms, uint64_t g) {
  for (const Term& t : terms) g = std::gcd(g, magnitude(t.coefficient));
  return g;
}

// Removes the constant term and returns it.
int64_t take_constant(std::vector<Term>* terms) {
  if (terms->empty() || !terms->back().factors.empty()) return 0;
  int64_t c = terms->back().coefficient;
  terms->pop_back();
  return c;
}

void put_constant(std::vector<Term>* terms, int64_t c) {
  if (c != 0) terms->push_back({c, {}});
}

}  // namespace

std::optional<int64_t> ExprBuilder::constant_divisor(const Atom* a, AtomKind kind) const {
  if (!a || a->kind != kind) return std::nullopt;
  return pool.constant_value(a->operands[1]);
}

// --- division of terms and sums ---

std::optional<Term> ExprBuilder::divide(const Term& a, const Term& b) const {
  if (b.coefficient == -1 ? a.coefficient == INT64_MIN : a.coefficient % b.coefficient != 0) return std::nullopt;
  Term t{a.coefficient / b.coefficient, {}};
  size_t j = 0;
  for (Factor f : a.factors) {
    if (j < b.factors.size() && b.factors[j].atom == f.atom) {
      if (f.power < b.factors[j].power) return std::nullopt;
      f.power -= b.factors[j++].power;
    }
    if (f.power != 0) t.factors.push_back(f);
  }
  if (j != b.factors.size()) return std::nullopt;
  return t;
}

// Long division by leading terms; none if there is a remainder.
std::optional<Poly> ExprBuilder::divide_exact(const Poly& a, const Poly& b) const {
  if (a.terms.size() < 2 && b.terms.size() > 1) return std::nullopt;
  Poly quotient, rest = a;
  if (b.terms.size() > 1 && a.terms.size() > kMaxDividend) return std::nullopt;
  while (!rest.terms.empty()) {
    auto t = divide(rest.terms[0], b.terms[0]);
    if (!t || t->coefficient == INT64_MIN || !spend(rest.terms.size())) return std::nullopt;
    quotient.terms.push_back(*t);
    Term negative = *t;
    negative.coefficient = -negative.coefficient;
    rest = add(rest, mul(b, Poly{{std::move(negative)}, true}));
    if (!rest.valid) return std::nullopt;
  }
  return quotient;
}

// The largest term that divides every term of both, with a positive coefficient.
Term ExprBuilder::common_factor(const Poly& a, const Poly& b) const {
  uint64_t g = content(a.terms, content(b.terms, 0));
  Term common{static_cast<int64_t>(std::min<uint64_t>(g, INT64_MAX)), b.terms[0].factors};
  if (g > INT64_MAX) common.coefficient = 1;
  auto keep = [&](const Term& t) {
    std::vector<Factor> kept;
    for (Factor f : common.factors)
      for (const Factor& other : t.factors)
        if (other.atom == f.atom) kept.push_back({f.atom, std::min(f.power, other.power)});
    common.factors = std::move(kept);
  };
  for (const Term& t : b.terms) keep(t);
  for (const Term& t : a.terms) keep(t);
  return common;
}

Poly ExprBuilder::divided(const Poly& a, const Term& by) const {
  Poly p;
  for (const Term& t : a.terms) p.terms.push_back(*divide(t, by));
  return p;
}

// --- floordiv ---

Poly ExprBuilder::floordiv(const Poly& a, const Poly& b) {
  if (!a.valid || !b.valid || b.is_zero()) return Poly::invalid();
  if (a.is_zero()) return a;
  if (b.terms[0].coefficient < 0) return floordiv(scaled(a, -1), scaled(b, -1));
  auto divisor = constant_value(b);
  return divisor ? floordiv_by_constant(a, *divisor) : floordiv_by_symbols(a, b);
}

// REQUIRES: b > 0
Poly ExprBuilder::floordiv_by_constant(const Poly& a, int64_t b) {
  if (b == 1) return a;
  Poly quotient, rest;
  std::vector<Term> terms = a.terms;
  int64_t c = take_constant(&terms);
  for (const Term& t : terms) {
    bool exact = t.coefficient % b == 0;
    if (exact) quotient.terms.push_back({t.coefficient / b, t.factors});
    else rest.terms.push_back(t);
  }
  put_constant(&quotient.terms, floor_div(c, b));
  if (rest.terms.empty()) return quotient;
  c = floor_mod(c, b);
  // (g*x + c) // (g*b) is (x + c//g) // b
  auto g = static_cast<int64_t>(content(rest.terms, static_cast<uint64_t>(b)));
  for (Term& t : rest.terms) t.coefficient /= g;
  b /= g, c /= g;
  const Atom* inner = single_atom(rest.terms);
  if (auto m = constant_divisor(inner, AtomKind::mod); m && *m > 0 && c <= b - *m) return quotient;
  if (auto m = constant_divisor(inner, AtomKind::floordiv)) {  // (x//m + c) // b is (x + c*m) // (m*b)
    int64_t both, shift;
    if (!__builtin_mul_overflow(*m, b, &both) && !__builtin_mul_overflow(c, *m, &shift)) {
      Poly shifted = add(poly(inner->operands[0]), constant(shift));
      if (shifted.valid) return add(quotient, floordiv_by_constant(shifted, both));
    }
  }
  put_constant(&rest.terms, c);
  return add(quotient, atom(AtomKind::floordiv, StrId(), {intern(std::move(rest)), pool.constant(b)}));
}

Poly ExprBuilder::floordiv_by_symbols(const Poly& a, const Poly& b) {
  if (auto exact = divide_exact(a, b)) return *exact;
  Poly quotient, rest;
  for (const Term& t : a.terms) {
    auto exact = b.terms.size() == 1 ? divide(t, b.terms[0]) : std::nullopt;
    if (exact) quotient.terms.push_back(std::move(*exact));
    else rest.terms.push_back(t);
  }
  if (rest.terms.empty()) return quotient;
  Term common = common_factor(rest, b);
  Poly divisor = divided(b, common);
  rest = divided(rest, common);
  if (constant_value(divisor)) return add(quotient, floordiv(rest, divisor));
  return add(quotient, atom(AtomKind::floordiv, StrId(), {intern(std::move(rest)), intern(std::move(divisor))}));
}

// --- mod ---

Poly ExprBuilder::mod(const Poly& a, const Poly& b) {
  if (!a.valid || !b.valid || b.is_zero()) return Poly::invalid();
  if (a.is_zero()) return a;
  if (b.terms[0].coefficient < 0) return scaled(mod(scaled(a, -1), scaled(b, -1)), -1);
  auto divisor = constant_value(b);
  return divisor ? mod_by_constant(a, *divisor) : mod_by_symbols(a, b);
}

// REQUIRES: b > 0
Poly ExprBuilder::mod_by_constant(const Poly& a, int64_t b) {
  if (b == 1) return {};
  Poly rest;
  std::vector<Term> terms = a.terms;
  int64_t c = floor_mod(take_constant(&terms), b);
  for (Term& t : terms) {
    if (t.coefficient % b == 0) continue;
    // k*(x % m) is k*x modulo b when b divides k*m
    Term unit{1, t.factors};
    const Atom* inner = single_atom({&unit, 1});
    auto m = constant_divisor(inner, AtomKind::mod);
    if (m && (static_cast<Wide>(t.coefficient) * *m) % b == 0) {
      Poly replaced = add(sub(a, Poly{{t}, true}), scaled(poly(inner->operands[0]), t.coefficient));
      if (replaced.valid) return mod_by_constant(replaced, b);
    }
    rest.terms.push_back(std::move(t));
  }
  if (rest.terms.empty()) return constant(c);
  // (g*x + g*c + d) % (g*b) is g*((x + c) % b) + d, for 0 <= d < g
  auto g = static_cast<int64_t>(content(rest.terms, static_cast<uint64_t>(b)));
  for (Term& t : rest.terms) t.coefficient /= g;
  int64_t d = c % g;
  b /= g, c /= g;
  auto m = constant_divisor(single_atom(rest.terms), AtomKind::mod);
  bool is_small = m && *m > 0 && c <= b - *m;  // x % m + c is in [0, b)
  put_constant(&rest.terms, c);
  if (!is_small) rest = atom(AtomKind::mod, StrId(), {intern(std::move(rest)), pool.constant(b)});
  return add(scaled(rest, g), constant(d));
}

Poly ExprBuilder::mod_by_symbols(const Poly& a, const Poly& b) {
  if (divide_exact(a, b)) return {};
  Poly rest;
  for (const Term& t : a.terms)
    if (b.terms.size() != 1 || !divide(t, b.terms[0])) rest.terms.push_back(t);
  if (rest.terms.empty()) return {};
  Term common = common_factor(rest, b);
  Poly divisor = divided(b, common);
  rest = divided(rest, common);
  Poly remainder = constant_value(divisor)
                       ? mod(rest, divisor)
                       : atom(AtomKind::mod, StrId(), {intern(std::move(rest)), intern(std::move(divisor))});
  return mul(remainder, Poly{{std::move(common)}, true});
}

// --- min and max ---

Poly ExprBuilder::extremum(AtomKind kind, std::vector<Poly> operands) {
  struct Operand {
    Poly rest;  // without the constant term
    int64_t constant;
  };
  std::vector<Operand> list;
  auto take = [&](Poly p) {
    int64_t c = take_constant(&p.terms);
    list.push_back({std::move(p), c});
  };
  for (Poly& p : operands) {
    if (!p.valid) return p;
    const Atom* inner = single_atom(p.terms);
    if (!inner || inner->kind != kind) take(std::move(p));
    else
      for (Expr e : inner->operands) take(poly(e));
  }
  // Of operands that differ only by a constant, one decides.
  auto wins = [&](int64_t x, int64_t y) { return kind == AtomKind::max ? x > y : x < y; };
  std::sort(list.begin(), list.end(), [&](const Operand& x, const Operand& y) {
    int c = compare_terms(x.rest.terms, y.rest.terms);
    return c != 0 ? c < 0 : wins(x.constant, y.constant);
  });
  auto same = [](const Operand& x, const Operand& y) { return x.rest.terms == y.rest.terms; };
  list.erase(std::unique(list.begin(), list.end(), same), list.end());
  if (list.size() > kMaxOperands) return Poly::invalid();
  std::vector<Expr> exprs;
  for (Operand& o : list) {
    put_constant(&o.rest.terms, o.constant);
    if (list.size() == 1) return std::move(o.rest);
    exprs.push_back(intern(std::move(o.rest)));
  }
  std::sort(exprs.begin(), exprs.end(), [&](Expr x, Expr y) { return pool.compare(x, y) < 0; });
  return atom(kind, StrId(), std::move(exprs));
}

}  // namespace sg
