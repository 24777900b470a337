// Internal to expr*.cc: arithmetic on expressions that are not interned yet.
//
// A Poly is a sum of terms in normal form. Building with Polys and interning only the result keeps intermediate sums
// and products out of the pool: it matters for long sums, powers, substitution and hostile text.
#pragma once

#include <span>
#include <vector>

#include "libgraph/expr/expr.h"

namespace sg {

struct Poly {
  std::vector<Term> terms;  // sorted, no zero coefficients
  bool valid = true;        // false = overflow, division by zero, too large: absorbs everything

  static Poly invalid() { return Poly{{}, false}; }
  bool is_zero() const { return valid && terms.empty(); }
};

__extension__ using Wide = __int128;  // holds any product of two int64_t

struct ExprBuilder {
  ExprPool& pool;
  size_t max_terms = ExprPool::kMaxTerms;
  mutable size_t budget = 1 << 20;  // factors that products and divisions may make in all: bounds time and memory

  Poly poly(Expr e) const;
  Poly constant(int64_t value) const;
  Poly symbol(StrId name);
  Expr intern(Poly p);

  // Sums the terms of all of `list`, in any order, at once.
  Poly collect(std::vector<Term> list) const;
  Poly add(const Poly& a, const Poly& b) const;
  Poly scaled(const Poly& a, int64_t by) const;
  Poly sub(const Poly& a, const Poly& b) const { return add(a, scaled(b, -1)); }
  Poly mul(const Poly& a, const Poly& b) const;
  Poly pow(const Poly& a, uint32_t power) const;

  // expr_atoms.cc
  Poly floordiv(const Poly& a, const Poly& b);
  Poly mod(const Poly& a, const Poly& b);
  Poly extremum(AtomKind kind, std::vector<Poly> operands);

  static std::optional<int64_t> constant_value(const Poly& p);
  // The atom, when the terms are exactly one atom to the power of one, with coefficient one.
  const Atom* single_atom(std::span<const Term> list) const;

  // Orders by content; see expr.h. The monomial order is lexicographic, so that multiplying by a term keeps it.
  int compare_atoms(uint32_t a, uint32_t b) const;
  int compare_monomials(std::span<const Factor> a, std::span<const Factor> b) const;
  int compare_terms(std::span<const Term> a, std::span<const Term> b) const;

 private:
  Poly atom(AtomKind kind, StrId symbol_name, std::vector<Expr> operands);
  bool spend(size_t work) const;  // false when the budget is used up
  std::optional<Term> multiply(const Term& a, const Term& b) const;
  std::optional<Term> divide(const Term& a, const Term& b) const;
  std::optional<Poly> divide_exact(const Poly& a, const Poly& b) const;
  Term common_factor(const Poly& a, const Poly& b) const;
  Poly divided(const Poly& a, const Term& by) const;
  Poly floordiv_by_constant(const Poly& a, int64_t b);
  Poly floordiv_by_symbols(const Poly& a, const Poly& b);
  Poly mod_by_constant(const Poly& a, int64_t b);
  Poly mod_by_symbols(const Poly& a, const Poly& b);
  // The constant divisor of a floordiv or mod atom; none when it is another atom or its divisor has symbols.
  std::optional<int64_t> constant_divisor(const Atom* a, AtomKind kind) const;
};

}  // namespace sg
