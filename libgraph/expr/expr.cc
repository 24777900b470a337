#include "libgraph/expr/expr.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include "libgraph/base/chars.h"
#include "libgraph/base/checked.h"
#include "libgraph/expr/expr_builder.h"

namespace sg {

ExprPool::ExprPool(StringTable* strings) : strings_(strings) {
  append({}, {0, 1, 0, true});  // Expr(0) is zero
  small_constants_[0] = Expr(0);
  append({}, {0, 1, 0, false});  // kInvalid
}

ExprPool::ExprPool(const ExprPool& other, StringTable* strings) : ExprPool(other) { strings_ = strings; }

Expr ExprPool::append(std::vector<Term> list, Info info) {
  Expr e(static_cast<uint32_t>(expr_terms_.size()));
  expr_terms_.push_back(std::move(list));
  info_.push_back(info);
  return e;
}

bool ExprPool::is_symbol_name(std::string_view name) {
  if (name.empty() || !is_letter(name[0])) return false;
  return std::all_of(name.begin(), name.end(), is_word);
}

// --- leaves ---

Expr ExprPool::constant(int64_t value) {
  if (value >= 0 && value < static_cast<int64_t>(small_constants_.size())) {
    Expr& known = small_constants_[static_cast<size_t>(value)];
    if (!known) known = append({{value, {}}}, {value, 1, 0, true});
    return known;
  }
  uint64_t hash = hash_of_number(static_cast<uint64_t>(value));
  Expr e(constants_.find(hash, [&](uint32_t i) { return info_[i].value == value; }));
  if (e) return e;
  e = append({{value, {}}}, {value, 1, 0, true});
  constants_.insert(hash, e.index);
  return e;
}

Expr ExprPool::symbol(StrId name) {
  if (const Expr* known = symbols_.find(name)) return *known;
  ExprBuilder b{*this};
  Expr e = b.intern(b.symbol(name));
  symbols_.try_emplace(name, e);
  return e;
}

Expr ExprPool::symbol(std::string_view name) { return symbol(strings_->intern(name)); }

std::optional<int64_t> ExprPool::constant_value(Expr e) const {
  const Info& info = info_[e.index];
  return info.is_constant ? std::optional(info.value) : std::nullopt;
}

std::optional<StrId> ExprPool::as_symbol(Expr e) const {
  const std::vector<Term>& list = expr_terms_[e.index];
  if (list.size() != 1 || list[0].coefficient != 1) return std::nullopt;
  if (list[0].factors.size() != 1 || list[0].factors[0].power != 1) return std::nullopt;
  const Atom& a = atoms_[list[0].factors[0].atom];
  return a.kind == AtomKind::symbol ? std::optional(a.symbol) : std::nullopt;
}

std::span<const Term> ExprPool::terms(Expr e) const {
  assert(!is_invalid(e));
  return expr_terms_[e.index];
}

// --- arithmetic: numbers and neutral elements first, then the general form ---

Expr ExprPool::add(Expr a, Expr b) {
  auto x = constant_value(a), y = constant_value(b);
  if (x && y) {
    auto sum_value = checked_add(*x, *y);
    return sum_value ? constant(*sum_value) : kInvalid;
  }
  if (x == 0) return b;
  if (y == 0) return a;
  ExprBuilder builder{*this};
  return builder.intern(builder.add(builder.poly(a), builder.poly(b)));
}

Expr ExprPool::sub(Expr a, Expr b) {
  if (constant_value(b) == 0) return a;
  if (a == b) return is_invalid(a) ? a : constant(0);
  ExprBuilder builder{*this};
  return builder.intern(builder.sub(builder.poly(a), builder.poly(b)));
}

Expr ExprPool::mul(Expr a, Expr b) {
  auto x = constant_value(a), y = constant_value(b);
  if (x && y) {
    auto value = checked_mul(*x, *y);
    return value ? constant(*value) : kInvalid;
  }
  if (x == 1) return b;
  if (y == 1) return a;
  ExprBuilder builder{*this};
  return builder.intern(builder.mul(builder.poly(a), builder.poly(b)));
}

Expr ExprPool::neg(Expr a) {
  ExprBuilder builder{*this};
  return builder.intern(builder.scaled(builder.poly(a), -1));
}

Expr ExprPool::pow(Expr a, uint32_t power) {
  if (power == 1) return a;
  ExprBuilder builder{*this};
  return builder.intern(builder.pow(builder.poly(a), power));
}

Expr ExprPool::floordiv(Expr a, Expr b) {
  auto x = constant_value(a), y = constant_value(b);
  if (x && y) return has_quotient(*x, *y) ? constant(floor_div(*x, *y)) : kInvalid;
  if (y == 1) return a;
  ExprBuilder builder{*this};
  return builder.intern(builder.floordiv(builder.poly(a), builder.poly(b)));
}

Expr ExprPool::mod(Expr a, Expr b) {
  auto x = constant_value(a), y = constant_value(b);
  if (x && y) return has_quotient(*x, *y) ? constant(floor_mod(*x, *y)) : kInvalid;
  ExprBuilder builder{*this};
  return builder.intern(builder.mod(builder.poly(a), builder.poly(b)));
}

Expr ExprPool::min(Expr a, Expr b) {
  auto x = constant_value(a), y = constant_value(b);
  if (x && y) return *x < *y ? a : b;
  ExprBuilder builder{*this};
  return builder.intern(builder.extremum(AtomKind::min, {builder.poly(a), builder.poly(b)}));
}

Expr ExprPool::max(Expr a, Expr b) {
  auto x = constant_value(a), y = constant_value(b);
  if (x && y) return *x > *y ? a : b;
  ExprBuilder builder{*this};
  return builder.intern(builder.extremum(AtomKind::max, {builder.poly(a), builder.poly(b)}));
}

Expr ExprPool::extremum(AtomKind kind, std::span<const Expr> list) {
  ExprBuilder builder{*this};
  std::vector<Poly> operands;
  for (Expr e : list) operands.push_back(builder.poly(e));
  return builder.intern(builder.extremum(kind, std::move(operands)));
}

Expr ExprPool::sum(std::span<const Expr> list) {
  if (list.size() == 1) return list[0];
  ExprBuilder builder{*this};
  std::vector<Term> all;
  for (Expr e : list) {
    if (is_invalid(e) || all.size() > 16 * kMaxTerms) return kInvalid;
    all.insert(all.end(), terms(e).begin(), terms(e).end());
  }
  return builder.intern(builder.collect(std::move(all)));
}

Expr ExprPool::product(std::span<const Expr> list) {
  if (list.size() == 1) return list[0];
  ExprBuilder builder{*this};
  Poly p = builder.constant(1);
  for (Expr e : list) p = builder.mul(p, builder.poly(e));
  return builder.intern(std::move(p));
}

// --- queries ---

void ExprPool::collect_symbols(Expr e, std::vector<StrId>* out) const {
  for (const Term& t : expr_terms_[e.index]) {
    for (const Factor& f : t.factors) {
      const Atom& a = atoms_[f.atom];
      if (a.kind == AtomKind::symbol && std::find(out->begin(), out->end(), a.symbol) == out->end())
        out->push_back(a.symbol);
      for (Expr operand : a.operands) collect_symbols(operand, out);
    }
  }
}

bool ExprPool::mentions(Expr e, StrId symbol) const {
  for (const Term& t : expr_terms_[e.index]) {
    for (const Factor& f : t.factors) {
      const Atom& a = atoms_[f.atom];
      if (a.kind == AtomKind::symbol && a.symbol == symbol) return true;
      for (Expr operand : a.operands)
        if (mentions(operand, symbol)) return true;
    }
  }
  return false;
}

int ExprPool::compare(Expr a, Expr b) const {
  if (a == b) return 0;
  if (is_invalid(a) || is_invalid(b)) return is_invalid(a) ? 1 : -1;  // invalid expressions last
  auto x = constant_value(a), y = constant_value(b);
  if (x && y) return *x < *y ? -1 : 1;
  if (x || y) return x ? -1 : 1;  // numbers first: max(1, u0)
  return ExprBuilder{const_cast<ExprPool&>(*this)}.compare_terms(expr_terms_[a.index], expr_terms_[b.index]);
}

// --- substitution and evaluation ---

namespace {

class Substitution {
 public:
  Substitution(ExprPool& pool, const ExprPool::Lookup& lookup) : pool_(pool), builder_{pool}, lookup_(lookup) {}

  Expr apply(Expr e) {
    if (pool_.is_invalid(e) || pool_.is_constant(e)) return e;
    if (auto it = done_.find(e); it != done_.end()) return it->second;
    Expr result = builder_.intern(sum(pool_.terms(e)));
    done_.emplace(e, result);
    return result;
  }

 private:
  Poly sum(std::span<const Term> list) {
    std::vector<Term> all;
    for (const Term& t : list) {
      Poly p = term(t);
      if (!p.valid || all.size() > 16 * ExprPool::kMaxTerms) return Poly::invalid();
      all.insert(all.end(), p.terms.begin(), p.terms.end());
    }
    return builder_.collect(std::move(all));
  }

  Poly term(const Term& t) {
    Poly p = builder_.constant(t.coefficient);
    for (const Factor& f : t.factors) p = builder_.mul(p, builder_.pow(atom(pool_.atom(f.atom)), f.power));
    return p;
  }

  Poly atom(const Atom& a) {
    if (a.kind == AtomKind::symbol) {
      auto replacement = lookup_(a.symbol);
      return replacement ? builder_.poly(*replacement) : builder_.symbol(a.symbol);
    }
    std::vector<Poly> operands;
    for (Expr e : a.operands) operands.push_back(builder_.poly(apply(e)));
    if (a.kind == AtomKind::floordiv) return builder_.floordiv(operands[0], operands[1]);
    if (a.kind == AtomKind::mod) return builder_.mod(operands[0], operands[1]);
    return builder_.extremum(a.kind, std::move(operands));
  }

  ExprPool& pool_;
  ExprBuilder builder_;
  const ExprPool::Lookup& lookup_;
  std::unordered_map<Expr, Expr, IdHash> done_;
};

std::optional<int64_t> evaluate_atom(const ExprPool& pool, const Atom& a, const ExprPool::Values& values) {
  if (a.kind == AtomKind::symbol) return values ? values(a.symbol) : std::nullopt;
  std::optional<int64_t> result;
  for (Expr operand : a.operands) {
    auto v = pool.evaluate(operand, values);
    if (!v) return std::nullopt;
    if (!result) {
      result = v;
    } else if (a.kind == AtomKind::min || a.kind == AtomKind::max) {
      result = a.kind == AtomKind::min ? std::min(*result, *v) : std::max(*result, *v);
    } else {
      if (!has_quotient(*result, *v)) return std::nullopt;
      result = a.kind == AtomKind::floordiv ? floor_div(*result, *v) : floor_mod(*result, *v);
    }
  }
  return result;
}

}  // namespace

Expr ExprPool::substitute(Expr e, const Lookup& lookup) {
  if (is_constant(e)) return e;
  if (auto name = as_symbol(e)) return lookup(*name).value_or(e);
  return Substitution(*this, lookup).apply(e);
}

std::optional<int64_t> ExprPool::evaluate(Expr e, const Values& values) const {
  if (is_invalid(e)) return std::nullopt;
  if (auto value = constant_value(e)) return value;
  std::optional<int64_t> total = 0;
  for (const Term& t : expr_terms_[e.index]) {
    std::optional<int64_t> product_value = t.coefficient;
    for (const Factor& f : t.factors) {
      auto base = evaluate_atom(*this, atoms_[f.atom], values);
      auto power = base ? checked_pow(*base, f.power) : std::nullopt;
      if (!power) return std::nullopt;
      product_value = checked_mul(*product_value, *power);
      if (!product_value) return std::nullopt;
    }
    total = checked_add(*total, *product_value);
    if (!total) return std::nullopt;
  }
  return total;
}

}  // namespace sg
