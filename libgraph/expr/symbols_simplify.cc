// Simplification of expressions under the facts.
#include "libgraph/expr/symbols_internal.h"

namespace sg {

namespace {

constexpr size_t kMaxCompared = 16;  // operands of one min or max that are compared pairwise

}  // namespace

class Facts::Simplifier {
 public:
  explicit Simplifier(const Facts& facts) : facts_(facts), builder_{facts.pool_.exprs} {}

  Expr apply(Expr e) {
    ExprPool& exprs = builder_.pool;
    if (exprs.is_invalid(e) || exprs.is_constant(e)) return e;
    if (auto it = done_.find(e); it != done_.end()) return it->second;
    Poly total;
    for (const Term& t : exprs.terms(e)) total = builder_.add(total, term(t));
    Expr result = builder_.intern(std::move(total));
    if (exprs.is_invalid(result)) result = e;
    done_.emplace(e, result);
    return result;
  }

 private:
  Poly term(const Term& t) {
    int64_t coefficient = t.coefficient;
    Poly p = builder_.constant(1);
    for (const Factor& f : t.factors) {
      Poly base = atom(f.atom);
      Poly whole = f.power == 1 ? multiplied_out(base, &coefficient) : base;
      p = builder_.mul(p, builder_.pow(whole, f.power));
    }
    return builder_.scaled(p, coefficient);
  }

  // 8*(s0//8) is s0 if 8 divides s0: removes the divisor from the coefficient.
  Poly multiplied_out(const Poly& base, int64_t* coefficient) const {
    const Atom* a = builder_.single_atom(base.terms);
    if (!base.valid || !a || a->kind != AtomKind::floordiv) return base;
    auto by = builder_.pool.constant_value(a->operands[1]);
    if (!by || *by <= 0 || *coefficient % *by != 0 || facts_.divisor(a->operands[0]) % *by != 0) return base;
    *coefficient /= *by;
    return builder_.poly(a->operands[0]);
  }

  Poly atom(uint32_t index) {
    const Atom& a = builder_.pool.atom(index);
    Poly same{{{1, {{index, 1}}}}, true};
    if (Interval r = facts_.bounds(same); r.is_single()) return builder_.constant(r.min);
    if (a.kind == AtomKind::symbol) return same;
    std::vector<Expr> operands;
    for (Expr e : a.operands) operands.push_back(apply(e));
    if (a.kind == AtomKind::floordiv) return builder_.floordiv(builder_.poly(operands[0]), builder_.poly(operands[1]));
    return a.kind == AtomKind::mod ? mod(operands[0], operands[1]) : extremum(a.kind, std::move(operands));
  }

  Poly mod(Expr a, Expr b) {
    auto by = builder_.pool.constant_value(b);
    if (by && *by > 0) {
      if (facts_.divisor(a) % *by == 0) return {};
      Interval r = facts_.range(a);
      if (r.min >= 0 && r.max < *by) return builder_.poly(a);
    }
    return builder_.mod(builder_.poly(a), builder_.poly(b));
  }

  // Drops operands that provably never decide the result.
  Poly extremum(AtomKind kind, std::vector<Expr> operands) {
    for (size_t i = 0; i < operands.size() && operands.size() <= kMaxCompared; ++i) {
      bool beaten = false;
      for (size_t j = 0; j < operands.size() && !beaten; ++j)
        beaten = i != j && (kind == AtomKind::max ? facts_.prove_le(operands[i], operands[j])
                                                  : facts_.prove_le(operands[j], operands[i]));
      if (beaten) operands.erase(operands.begin() + static_cast<ptrdiff_t>(i--));
    }
    std::vector<Poly> polys;
    for (Expr e : operands) polys.push_back(builder_.poly(e));
    return builder_.extremum(kind, std::move(polys));
  }

  const Facts& facts_;
  ExprBuilder builder_;
  std::unordered_map<Expr, Expr, IdHash> done_;
};

Expr Facts::simplify(Expr e, bool use_equalities) const {
  ExprPool& exprs = pool_.exprs;
  Expr plain = Simplifier(*this).apply(e);
  if (!use_equalities || exprs.is_invalid(plain) || equal_to_.empty()) return plain;
  // Symbols equal to another symbol or a number are always replaced; sums (u0 + u1 + u2 + u3 == 256) only if that is
  // shorter.
  Expr renamed = exprs.substitute(plain, [&](StrId s) -> std::optional<Expr> {
    auto it = equal_to_.find(s);
    bool is_plain = it != equal_to_.end() && (exprs.is_constant(it->second) || exprs.as_symbol(it->second));
    return is_plain ? std::optional(it->second) : std::nullopt;
  });
  if (exprs.is_invalid(renamed)) return plain;
  Expr full = ExprBuilder{exprs}.intern(reduced(ExprBuilder{exprs}.poly(renamed)));
  bool is_shorter = !exprs.is_invalid(full) && exprs.terms(full).size() < exprs.terms(renamed).size();
  return Simplifier(*this).apply(is_shorter ? full : renamed);
}

}  // namespace sg
