// Proofs: bounds of expressions by a bounded search over constraints and atoms.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "libgraph/base/checked.h"
#include "libgraph/expr/guard_text.h"
#include "libgraph/expr/symbols_internal.h"

namespace sg {

namespace {

constexpr int kSearchDepth = 4;
constexpr size_t kMaxSearchTerms = 256;

Answer opposite(Answer a) { return a == Answer::yes ? Answer::no : a == Answer::no ? Answer::yes : a; }

bool is_single_atom(const Term& t) { return t.factors.size() == 1 && t.factors[0].power == 1; }

// floor(bound / by); infinity stays infinite. REQUIRES: by > 0
int64_t divided(int64_t bound, int64_t by) { return bound == Interval::kHighest ? bound : floor_div(bound, by); }

}  // namespace

// --- upper bounds ---

int64_t Facts::Search::upper_bound(const Poly& p, int depth) {
  if (!p.valid) return Interval::kHighest;
  int64_t best = facts.interval(p).max;
  if (depth == 0 || p.terms.size() > kMaxSearchTerms || ExprBuilder::constant_value(p)) return best;
  try_atoms(p, depth, &best);
  try_constraints(p, depth, &best);
  return best;
}

void Facts::Search::try_constraints(const Poly& p, int depth, int64_t* best) {
  std::vector<uint32_t> tried;
  for (const Term& t : p.terms) {
    for (const Factor& f : t.factors) {
      auto it = facts.by_atom_.find(f.atom);
      if (it == facts.by_atom_.end()) continue;
      for (uint32_t index : it->second) {
        const Constraint& c = facts.constraints_[index];
        if (steps <= 0 || --looks < 0) return;
        bool done = std::find(tried.begin(), tried.end(), index) != tried.end();
        if (done || c.kind == Constraint::Kind::not_zero) continue;
        tried.push_back(index);
        *best = std::min(*best, minus_constraint(p, c.left, depth));
        if (c.kind == Constraint::Kind::zero)
          *best = std::min(*best, minus_constraint(p, builder.scaled(c.left, -1), depth));
      }
    }
  }
}

// If c <= 0 and p and c have a term of the same sign: scale*p <= scale*p - share*c, where that term cancels.
int64_t Facts::Search::minus_constraint(const Poly& p, const Poly& c, int depth) {
  if (!c.valid) return Interval::kHighest;
  for (const Term& x : p.terms) {
    for (const Term& y : c.terms) {
      if (x.factors.empty() || x.factors != y.factors || (x.coefficient < 0) != (y.coefficient < 0)) continue;
      if (x.coefficient == INT64_MIN || y.coefficient == INT64_MIN || --steps < 0) return Interval::kHighest;
      int64_t g = std::gcd(x.coefficient, y.coefficient);
      int64_t scale = std::abs(y.coefficient) / g, share = std::abs(x.coefficient) / g;
      Poly larger = builder.sub(builder.scaled(p, scale), builder.scaled(c, share));
      return divided(upper_bound(larger, depth - 1), scale);
    }
  }
  return Interval::kHighest;
}

void Facts::Search::try_atoms(const Poly& p, int depth, int64_t* best) {
  for (size_t i = 0; i < p.terms.size(); ++i) {
    const Term& t = p.terms[i];
    if (!is_single_atom(t) || t.coefficient == INT64_MIN) continue;
    AtomKind kind = builder.pool.atom(t.factors[0].atom).kind;
    if (kind == AtomKind::max || kind == AtomKind::min) {
      // k*max(a, b) is either k*a or k*b: bounded by the larger for k > 0, and by either for k < 0.
      bool all = (kind == AtomKind::max) == (t.coefficient > 0);
      *best = std::min(*best, with_operands(p, i, all, depth));
    } else if (kind == AtomKind::floordiv) {
      *best = std::min(*best, without_floordiv(p, i, depth));
    }
  }
}

// The bound of p with an atom replaced by its operands: the largest bound if `all`, else the smallest.
int64_t Facts::Search::with_operands(const Poly& p, size_t term, bool all, int depth) {
  const Term& t = p.terms[term];
  Poly rest = builder.sub(p, Poly{{t}, true});
  int64_t bound = all ? Interval::kLowest : Interval::kHighest;
  for (Expr operand : builder.pool.atom(t.factors[0].atom).operands) {
    if (--steps < 0) return Interval::kHighest;
    int64_t one = upper_bound(builder.add(rest, builder.scaled(builder.poly(operand), t.coefficient)), depth - 1);
    bound = all ? std::max(bound, one) : std::min(bound, one);
  }
  return bound;
}

// x - b + 1 <= b*(x // b) <= x for b > 0.
int64_t Facts::Search::without_floordiv(const Poly& p, size_t term, int depth) {
  const Term& t = p.terms[term];
  const Atom& a = builder.pool.atom(t.factors[0].atom);
  auto b = builder.pool.constant_value(a.operands[1]);
  if (!b || *b <= 0 || --steps < 0) return Interval::kHighest;
  Poly multiple = builder.poly(a.operands[0]);
  if (t.coefficient < 0) multiple = builder.sub(multiple, builder.constant(*b - 1));
  Poly rest = builder.scaled(builder.sub(p, Poly{{t}, true}), *b);
  return divided(upper_bound(builder.add(rest, builder.scaled(multiple, t.coefficient)), depth - 1), *b);
}

int64_t Facts::upper_bound(const Poly& p) const {
  return Search{*this, ExprBuilder{pool_.exprs}}.upper_bound(p, kSearchDepth);
}

Interval Facts::bounds(const Poly& p) const {
  Poly negative = ExprBuilder{pool_.exprs}.scaled(p, -1);
  Interval r;
  r.max = upper_bound(p);
  int64_t lowest = upper_bound(negative);
  if (lowest != Interval::kHighest) r.min = lowest == Interval::kLowest ? Interval::kHighest : -lowest;
  return r.min <= r.max ? r : interval(p);  // contradictory facts
}

// --- proofs ---

Answer Facts::prove(Relation relation, Expr a, Expr b) const {
  if (pool_.exprs.is_invalid(a) || pool_.exprs.is_invalid(b)) return Answer::unknown;
  if (relation == Relation::ne || relation == Relation::gt || relation == Relation::ge)
    return opposite(prove(negated(relation), a, b));
  ExprBuilder builder{pool_.exprs};
  Poly difference = builder.sub(builder.poly(a), builder.poly(b));
  for (int pass = 0; pass < 2 && difference.valid; ++pass) {
    Interval r = bounds(difference);
    if (relation == Relation::lt && r.max < 0) return Answer::yes;
    if (relation == Relation::lt && r.min >= 0) return Answer::no;
    if (relation == Relation::le && r.max <= 0) return Answer::yes;
    if (relation == Relation::le && r.min > 0) return Answer::no;
    if (relation == Relation::eq && r == Interval::of(0)) return Answer::yes;
    if (relation == Relation::eq && (!r.contains(0) || is_never_zero(difference))) return Answer::no;
    Poly other = reduced(difference);
    if (other.terms == difference.terms) break;
    difference = std::move(other);
  }
  return Answer::unknown;
}

// By a guard that states it, or because the symbolic part is a multiple of a number that does not divide the constant.
bool Facts::is_never_zero(const Poly& p) const {
  if (!p.valid || p.terms.empty()) return false;
  Poly negative = ExprBuilder{pool_.exprs}.scaled(p, -1);
  for (const Factor& f : p.terms[0].factors) {
    auto it = by_atom_.find(f.atom);
    if (it == by_atom_.end()) continue;
    for (uint32_t index : it->second) {
      const Constraint& c = constraints_[index];
      bool is_same = c.left.terms == p.terms || c.left.terms == negative.terms;
      if (c.kind == Constraint::Kind::not_zero && is_same) return true;
    }
  }
  if (!p.terms.back().factors.empty() || p.terms.size() < 2) return false;
  Poly rest = p;
  int64_t constant = rest.terms.back().coefficient;
  rest.terms.pop_back();
  int64_t d = divisor_of(rest);
  return d > 1 && constant % d != 0;
}

}  // namespace sg
