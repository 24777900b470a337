#include "libgraph/expr/symbols.h"

#include <cstdlib>
#include <numeric>

#include "libgraph/base/checked.h"
#include "libgraph/expr/symbols_internal.h"

namespace sg {

namespace {

constexpr int kNarrowingRounds = 8;
constexpr size_t kMaxEqualities = 512;
constexpr size_t kMaxEqualityTerms = 256;

// The symbol, if the term is a number times one symbol.
std::optional<StrId> linear_symbol(const ExprPool& exprs, const Term& t) {
  if (t.factors.size() != 1 || t.factors[0].power != 1) return std::nullopt;
  const Atom& a = exprs.atom(t.factors[0].atom);
  return a.kind == AtomKind::symbol ? std::optional(a.symbol) : std::nullopt;
}

bool mentions(const ExprPool& exprs, const Term& t, StrId symbol) {
  for (const Factor& f : t.factors) {
    const Atom& a = exprs.atom(f.atom);
    if (a.kind == AtomKind::symbol && a.symbol == symbol) return true;
    for (Expr e : a.operands)
      if (exprs.mentions(e, symbol)) return true;
  }
  return false;
}

int64_t checked_lcm(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a / std::gcd(a, b), b, &r) ? a : r;
}

}  // namespace

Facts::~Facts() = default;
Facts::Facts(Facts&&) noexcept = default;

Facts::Facts(const Program& program) : pool_(program.graph.pool()) {
  learn_symbols(program);
  for (const Guard& g : program.guards) learn_guard(g);
  narrow();
}

void Facts::learn_symbols(const Program& program) {
  for (const Symbol& s : program.symbols) {
    if (s.divisor > 1) divisors_[s.name] = s.divisor;
    ranges_.try_emplace(s.name);
    narrow_symbol(s.name, Interval::of(s.min, s.max));
  }
}

void Facts::learn_guard(const Guard& guard) {
  ExprBuilder b{pool_.exprs};
  Constraint c;
  c.left = b.sub(b.poly(guard.left), b.poly(guard.right));
  Relation relation = guard.relation;
  if (relation == Relation::ge || relation == Relation::gt) c.left = b.scaled(c.left, -1);
  if (relation == Relation::lt || relation == Relation::gt) c.left = b.add(c.left, b.constant(1));
  if (relation == Relation::eq) c.kind = Constraint::Kind::zero;
  if (relation == Relation::ne) c.kind = Constraint::Kind::not_zero;
  if (!c.left.valid) return;
  if (auto value = ExprBuilder::constant_value(c.left)) {
    bool holds = c.kind == Constraint::Kind::zero       ? *value == 0
                 : c.kind == Constraint::Kind::not_zero ? *value != 0
                                                        : *value <= 0;
    contradictory_ |= !holds;
    return;
  }
  if (c.kind == Constraint::Kind::zero) learn_equality(c.left);
  // A bound on a single symbol is fully captured by its range: proofs need not look at it again.
  bool is_bound = linear_symbol(pool_.exprs, c.left.terms[0]) && c.kind == Constraint::Kind::at_most_zero &&
                  (c.left.terms.size() == 1 || (c.left.terms.size() == 2 && c.left.terms[1].factors.empty()));
  for (const Term& t : c.left.terms)
    for (const Factor& f : t.factors)
      if (!is_bound) by_atom_[f.atom].push_back(static_cast<uint32_t>(constraints_.size()));
  constraints_.push_back(std::move(c));
}

void Facts::learn_equality(const Poly& difference) {
  ExprPool& exprs = pool_.exprs;
  ExprBuilder b{exprs};
  // Eq(s0 % 8, 0) is a divisibility.
  if (difference.terms.size() == 1 && difference.terms[0].factors.size() == 1) {
    const Atom& a = exprs.atom(difference.terms[0].factors[0].atom);
    auto m = a.kind == AtomKind::mod ? exprs.constant_value(a.operands[1]) : std::nullopt;
    auto name = m ? exprs.as_symbol(a.operands[0]) : std::nullopt;
    if (name && *m > 1) {
      auto [it, is_new] = divisors_.try_emplace(*name, *m);
      if (!is_new) it->second = checked_lcm(it->second, *m);
    }
  }
  Poly rest = reduced(difference);
  if (!rest.valid || equal_to_.size() >= kMaxEqualities || rest.terms.size() > kMaxEqualityTerms) return;
  for (size_t i = rest.terms.size(); i-- > 0;) {
    Term t = rest.terms[i];
    auto name = linear_symbol(exprs, t);
    if (!name || (t.coefficient != 1 && t.coefficient != -1)) continue;
    rest.terms.erase(rest.terms.begin() + static_cast<ptrdiff_t>(i));
    bool elsewhere = false;
    for (const Term& other : rest.terms) elsewhere |= mentions(exprs, other, *name);
    if (elsewhere) {
      rest.terms.insert(rest.terms.begin() + static_cast<ptrdiff_t>(i), std::move(t));
      continue;
    }
    Expr value = b.intern(b.scaled(rest, -t.coefficient));
    if (exprs.is_invalid(value)) return;
    auto lookup = [&](StrId s) { return s == *name ? std::optional(value) : std::nullopt; };
    for (auto& [symbol, known] : equal_to_)
      if (exprs.mentions(known, *name)) known = exprs.substitute(known, lookup);
    std::erase_if(equal_to_, [&](const auto& entry) { return exprs.is_invalid(entry.second); });
    equal_to_.emplace(*name, value);
    return;
  }
}

// --- narrowing the ranges of symbols ---

void Facts::narrow() {
  ExprBuilder b{pool_.exprs};
  for (const auto& [symbol, divisor] : divisors_) narrow_symbol(symbol, {});  // inward to multiples
  bool changed = true;
  for (int round = 0; changed && round < kNarrowingRounds; ++round) {
    changed = false;
    for (const Constraint& c : constraints_) {
      if (c.kind != Constraint::Kind::not_zero) {
        changed |= narrow_with(c.left);
        if (c.kind == Constraint::Kind::zero) changed |= narrow_with(b.scaled(c.left, -1));
        continue;
      }
      // u0 != 0 and u0 >= 0 give u0 >= 1.
      if (c.left.terms.size() > 2 || c.left.terms[0].coefficient != 1) continue;
      auto name = linear_symbol(pool_.exprs, c.left.terms[0]);
      bool has_constant = c.left.terms.size() == 2;
      if (!name || (has_constant && !c.left.terms[1].factors.empty())) continue;
      int64_t constant = has_constant ? c.left.terms[1].coefficient : 0;
      if (constant == INT64_MIN) continue;
      int64_t value = -constant;
      Interval r = range_of_symbol(*name);
      if (r.has_min() && r.min == value && value < INT64_MAX) changed |= narrow_symbol(*name, {value + 1, r.max});
      if (r.has_max() && r.max == value && value > INT64_MIN + 1) changed |= narrow_symbol(*name, {r.min, value - 1});
    }
  }
  known_.clear();
}

// Narrows each symbol of a sum that is at most zero to what the least values of the other terms leave for it.
bool Facts::narrow_with(const Poly& at_most_zero) {
  if (!at_most_zero.valid) return false;
  std::vector<int64_t> least;
  Wide total = 0;
  size_t unbounded = 0;
  for (const Term& t : at_most_zero.terms) {
    least.push_back(interval(Poly{{t}, true}).min);
    if (least.back() == Interval::kLowest) ++unbounded;
    else total += least.back();
  }
  bool changed = false;
  for (size_t i = 0; i < least.size(); ++i) {
    const Term& t = at_most_zero.terms[i];
    auto name = linear_symbol(pool_.exprs, t);
    bool is_open = least[i] == Interval::kLowest;
    if (!name || unbounded > (is_open ? 1 : 0)) continue;
    Wide room = -(is_open ? total : total - least[i]);  // coefficient * symbol <= room
    if (room >= INT64_MAX || room <= INT64_MIN + 1 || t.coefficient == INT64_MIN) continue;
    int64_t bound = floor_div(static_cast<int64_t>(room), t.coefficient < 0 ? -t.coefficient : t.coefficient);
    changed |= t.coefficient > 0 ? narrow_symbol(*name, {Interval::kLowest, bound})
                                 : narrow_symbol(*name, {-bound, Interval::kHighest});
  }
  return changed;
}

bool Facts::narrow_symbol(StrId symbol, Interval range) {
  Interval& known = ranges_[symbol];
  Interval now = intersection(known, range);
  if (auto it = divisors_.find(symbol); it != divisors_.end()) {
    int64_t d = it->second;
    // Round inward to multiples; skipped where that would leave 64 bits.
    int64_t up = now.has_min() ? floor_mod(now.min, d) : 0;
    if (up != 0 && now.min <= INT64_MAX - (d - up)) now.min += d - up;
    int64_t down = now.has_max() ? floor_mod(now.max, d) : 0;
    if (down != 0 && now.max > INT64_MIN + down) now.max -= down;
  }
  if (now.min > now.max) {
    contradictory_ = true;
    return false;
  }
  bool changed = !(now == known);
  known = now;
  return changed;
}

bool Facts::tighten(std::span<const Bound> bounds) {
  bool changed = false;
  for (const Bound& b : bounds) changed |= narrow_symbol(b.symbol, b.range);
  if (changed) narrow();
  return changed;
}

// --- ranges ---

Interval Facts::range_of_symbol(StrId name) const {
  auto it = ranges_.find(name);
  return it == ranges_.end() ? Interval{} : it->second;
}

Interval Facts::interval_of_atom(uint32_t index) const {
  const Atom& a = pool_.exprs.atom(index);
  if (a.kind == AtomKind::symbol) return range_of_symbol(a.symbol);
  ExprBuilder b{pool_.exprs};
  Interval r = interval(b.poly(a.operands[0]));
  for (size_t i = 1; i < a.operands.size(); ++i) {
    Interval other = interval(b.poly(a.operands[i]));
    switch (a.kind) {
      case AtomKind::floordiv: r = floordiv(r, other); break;
      case AtomKind::mod: r = mod(r, other); break;
      case AtomKind::min: r = min(r, other); break;
      default: r = max(r, other); break;
    }
  }
  return r;
}

Interval Facts::interval(const Poly& p) const {
  if (!p.valid) return {};
  Interval sum = Interval::of(0);
  for (const Term& t : p.terms) {
    Interval product = Interval::of(1);
    for (const Factor& f : t.factors) product = mul(product, pow(interval_of_atom(f.atom), f.power));
    sum = add(sum, scaled(product, t.coefficient));
  }
  return sum;
}

Interval Facts::range(Expr e) const {
  if (auto value = pool_.exprs.constant_value(e)) return Interval::of(*value);
  if (pool_.exprs.is_invalid(e)) return {};
  if (auto name = pool_.exprs.as_symbol(e)) return range_of_symbol(*name);
  if (auto it = known_.find(e); it != known_.end()) return it->second;
  Poly p = ExprBuilder{pool_.exprs}.poly(e);
  Interval r = bounds(p);
  if (Poly q = reduced(p); q.valid && q.terms != p.terms) {
    Interval other = intersection(r, bounds(q));
    if (other.min <= other.max) r = other;
  }
  known_.emplace(e, r);
  return r;
}

Interval Facts::quick_range(Expr e) const {
  if (auto value = pool_.exprs.constant_value(e)) return Interval::of(*value);
  return pool_.exprs.is_invalid(e) ? Interval() : interval(ExprBuilder{pool_.exprs}.poly(e));
}

// --- divisors ---

int64_t Facts::divisor_of_atom(uint32_t index) const {
  const Atom& a = pool_.exprs.atom(index);
  if (a.kind == AtomKind::symbol) {
    auto it = divisors_.find(a.symbol);
    return it == divisors_.end() ? 1 : it->second;
  }
  int64_t d = divisor(a.operands[0]);
  if (a.kind == AtomKind::floordiv) {
    auto by = pool_.exprs.constant_value(a.operands[1]);
    return by && *by > 0 && d % *by == 0 ? d / *by : 1;
  }
  for (size_t i = 1; i < a.operands.size(); ++i) d = std::gcd(d, divisor(a.operands[i]));
  return d;
}

int64_t Facts::divisor_of(const Poly& p) const {
  uint64_t g = 0;
  for (const Term& t : p.terms) {
    int64_t d = t.coefficient == INT64_MIN ? int64_t{1} << 62 : std::abs(t.coefficient);
    for (const Factor& f : t.factors) {
      auto power = checked_pow(divisor_of_atom(f.atom), f.power);
      int64_t product;
      if (power && !__builtin_mul_overflow(d, *power, &product)) d = product;  // on overflow the factor is left out
    }
    g = std::gcd(g, static_cast<uint64_t>(d));
  }
  return static_cast<int64_t>(g);
}

int64_t Facts::divisor(Expr e) const {
  if (pool_.exprs.is_invalid(e)) return 1;
  return divisor_of(ExprBuilder{pool_.exprs}.poly(e));
}

Poly Facts::reduced(const Poly& p) const {
  if (equal_to_.empty() || !p.valid) return p;
  ExprPool& exprs = pool_.exprs;
  ExprBuilder b{exprs};
  bool applies = false;
  std::vector<StrId> symbols;
  Expr e = b.intern(p);
  if (exprs.is_invalid(e)) return p;
  exprs.collect_symbols(e, &symbols);
  for (StrId s : symbols) applies |= equal_to_.count(s) != 0;
  if (!applies) return p;
  return b.poly(exprs.substitute(e, [&](StrId s) -> std::optional<Expr> {
    auto it = equal_to_.find(s);
    return it == equal_to_.end() ? std::nullopt : std::optional(it->second);
  }));
}

}  // namespace sg
