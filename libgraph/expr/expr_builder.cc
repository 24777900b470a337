#include "libgraph/expr/expr_builder.h"

#include <algorithm>
#include <cassert>

#include "libgraph/base/chars.h"
#include "libgraph/base/checked.h"
#include "libgraph/base/hashing.h"

namespace sg {

namespace {

// Orders u2 before u10: runs of digits compare as numbers of any length.
int compare_names(std::string_view a, std::string_view b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]) ? -1 : 1;
      ++i, ++j;
      continue;
    }
    size_t i_end = i, j_end = j;
    while (i_end < a.size() && is_digit(a[i_end])) ++i_end;
    while (j_end < b.size() && is_digit(b[j_end])) ++j_end;
    std::string_view x = a.substr(i, i_end - i), y = b.substr(j, j_end - j);
    x.remove_prefix(std::min(x.find_first_not_of('0'), x.size()));
    y.remove_prefix(std::min(y.find_first_not_of('0'), y.size()));
    if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
    if (int c = x.compare(y); c != 0) return c < 0 ? -1 : 1;
    i = i_end, j = j_end;
  }
  if (size_t x = a.size() - i, y = b.size() - j; x != y) return x < y ? -1 : 1;
  int c = a.compare(b);  // equal up to leading zeros
  return c < 0 ? -1 : c > 0;
}

size_t count_factors(const Poly& p) {
  size_t n = p.terms.size();
  for (const Term& t : p.terms) n += t.factors.size();
  return n;
}

}  // namespace

// --- order ---

int ExprBuilder::compare_atoms(uint32_t a, uint32_t b) const {
  if (a == b) return 0;
  const Atom& x = pool.atoms_[a];
  const Atom& y = pool.atoms_[b];
  if (x.kind != y.kind) return x.kind < y.kind ? -1 : 1;
  if (x.kind == AtomKind::symbol) return compare_names((*pool.strings_)[x.symbol], (*pool.strings_)[y.symbol]);
  for (size_t i = 0; i < x.operands.size() && i < y.operands.size(); ++i)
    if (int c = pool.compare(x.operands[i], y.operands[i]); c != 0) return c;
  return x.operands.size() < y.operands.size() ? -1 : 1;
}

int ExprBuilder::compare_monomials(std::span<const Factor> a, std::span<const Factor> b) const {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (int c = compare_atoms(a[i].atom, b[i].atom); c != 0) return c;
    if (a[i].power != b[i].power) return a[i].power > b[i].power ? -1 : 1;
  }
  return a.size() == b.size() ? 0 : a.size() > b.size() ? -1 : 1;
}

int ExprBuilder::compare_terms(std::span<const Term> a, std::span<const Term> b) const {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (int c = compare_monomials(a[i].factors, b[i].factors); c != 0) return c;
    if (a[i].coefficient != b[i].coefficient) return a[i].coefficient < b[i].coefficient ? -1 : 1;
  }
  return a.size() == b.size() ? 0 : a.size() < b.size() ? -1 : 1;
}

// --- conversion from and to the pool ---

Poly ExprBuilder::poly(Expr e) const {
  if (pool.is_invalid(e)) return Poly::invalid();
  return Poly{pool.expr_terms_[e.index], true};
}

Poly ExprBuilder::constant(int64_t value) const {
  Poly p;
  if (value != 0) p.terms.push_back({value, {}});
  return p;
}

Poly ExprBuilder::symbol(StrId name) { return atom(AtomKind::symbol, name, {}); }

std::optional<int64_t> ExprBuilder::constant_value(const Poly& p) {
  if (!p.valid || p.terms.size() > 1) return std::nullopt;
  if (p.terms.empty()) return 0;
  if (!p.terms[0].factors.empty()) return std::nullopt;
  return p.terms[0].coefficient;
}

const Atom* ExprBuilder::single_atom(std::span<const Term> list) const {
  if (list.size() != 1 || list[0].coefficient != 1) return nullptr;
  if (list[0].factors.size() != 1 || list[0].factors[0].power != 1) return nullptr;
  return &pool.atoms_[list[0].factors[0].atom];
}

Expr ExprBuilder::intern(Poly p) {
  if (!p.valid) return ExprPool::kInvalid;
  if (auto value = constant_value(p)) return pool.constant(*value);
  size_t weight = 0, depth = 0;
  Hasher h;
  for (const Term& t : p.terms) {
    h.mix(static_cast<uint64_t>(t.coefficient)).mix(uint64_t{t.factors.size()});
    ++weight;
    for (const Factor& f : t.factors) {
      h.mix(uint64_t{f.atom}).mix(uint64_t{f.power});
      ++weight;
      for (Expr operand : pool.atoms_[f.atom].operands) {
        weight += pool.info_[operand.index].weight;
        depth = std::max(depth, size_t{pool.info_[operand.index].depth} + 1);
      }
    }
  }
  if (p.terms.size() > ExprPool::kMaxTerms || weight > ExprPool::kMaxWeight || depth > ExprPool::kMaxDepth)
    return ExprPool::kInvalid;
  Expr known(pool.expr_index_.find(h.value(), [&](uint32_t i) { return pool.expr_terms_[i] == p.terms; }));
  if (known) return known;
  ExprPool::Info info{0, static_cast<uint32_t>(weight), static_cast<uint16_t>(depth), false};
  Expr e = pool.append(std::move(p.terms), info);
  pool.expr_index_.insert(h.value(), e.index);
  return e;
}

Poly ExprBuilder::atom(AtomKind kind, StrId symbol_name, std::vector<Expr> operands) {
  Hasher h;
  h.mix(static_cast<uint64_t>(kind)).mix(symbol_name).mix_all(operands);
  for (Expr e : operands)
    if (pool.is_invalid(e)) return Poly::invalid();
  uint32_t index = pool.atom_index_.find(h.value(), [&](uint32_t i) {
    const Atom& known = pool.atoms_[i];
    return known.kind == kind && known.symbol == symbol_name && known.operands == operands;
  });
  if (index == FlatIndex::kNone) {
    index = static_cast<uint32_t>(pool.atoms_.size());
    pool.atoms_.push_back({kind, symbol_name, std::move(operands)});
    pool.atom_index_.insert(h.value(), index);
  }
  return Poly{{{1, {{index, 1}}}}, true};
}

// --- sums and products ---

Poly ExprBuilder::collect(std::vector<Term> list) const {
  auto before = [this](const Term& a, const Term& b) { return compare_monomials(a.factors, b.factors) < 0; };
  std::sort(list.begin(), list.end(), before);
  Poly p;
  for (size_t i = 0; i < list.size();) {
    Wide sum = 0;  // cannot overflow: far fewer than 2^63 numbers of 64 bits
    size_t first = i;
    for (; i < list.size() && list[i].factors == list[first].factors; ++i) sum += list[i].coefficient;
    if (sum > INT64_MAX || sum < INT64_MIN) return Poly::invalid();
    if (sum == 0) continue;
    p.terms.push_back({static_cast<int64_t>(sum), std::move(list[first].factors)});
  }
  return p.terms.size() > max_terms ? Poly::invalid() : p;
}

Poly ExprBuilder::add(const Poly& a, const Poly& b) const {
  if (!a.valid || !b.valid) return Poly::invalid();
  Poly p;
  p.terms.reserve(a.terms.size() + b.terms.size());
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    int order = i == a.terms.size()   ? 1
                : j == b.terms.size() ? -1
                                      : compare_monomials(a.terms[i].factors, b.terms[j].factors);
    if (order < 0) {
      p.terms.push_back(a.terms[i++]);
    } else if (order > 0) {
      p.terms.push_back(b.terms[j++]);
    } else {
      int64_t sum;
      if (__builtin_add_overflow(a.terms[i].coefficient, b.terms[j].coefficient, &sum)) return Poly::invalid();
      if (sum != 0) p.terms.push_back({sum, a.terms[i].factors});
      ++i, ++j;
    }
  }
  return p.terms.size() > max_terms ? Poly::invalid() : p;
}

Poly ExprBuilder::scaled(const Poly& a, int64_t by) const {
  if (!a.valid || by == 0) return Poly{{}, a.valid};
  Poly p = a;
  for (Term& t : p.terms)
    if (__builtin_mul_overflow(t.coefficient, by, &t.coefficient)) return Poly::invalid();
  return p;
}

std::optional<Term> ExprBuilder::multiply(const Term& a, const Term& b) const {
  Term t;
  if (__builtin_mul_overflow(a.coefficient, b.coefficient, &t.coefficient)) return std::nullopt;
  t.factors.reserve(a.factors.size() + b.factors.size());
  size_t i = 0, j = 0;
  while (i < a.factors.size() || j < b.factors.size()) {
    int order = i == a.factors.size()   ? 1
                : j == b.factors.size() ? -1
                                        : compare_atoms(a.factors[i].atom, b.factors[j].atom);
    if (order == 0) {
      Factor f = a.factors[i++];
      if (__builtin_add_overflow(f.power, b.factors[j++].power, &f.power)) return std::nullopt;
      t.factors.push_back(f);
    } else {
      t.factors.push_back(order < 0 ? a.factors[i++] : b.factors[j++]);
    }
  }
  return t;
}

bool ExprBuilder::spend(size_t work) const {
  if (work > budget) return false;
  budget -= work;
  return true;
}

Poly ExprBuilder::mul(const Poly& a, const Poly& b) const {
  if (!a.valid || !b.valid) return Poly::invalid();
  if (!spend(a.terms.size() * count_factors(b) + b.terms.size() * count_factors(a))) return Poly::invalid();
  std::vector<Term> products;
  products.reserve(a.terms.size() * b.terms.size());
  for (const Term& x : a.terms) {
    for (const Term& y : b.terms) {
      auto t = multiply(x, y);
      if (!t) return Poly::invalid();
      products.push_back(std::move(*t));
    }
  }
  if (a.terms.size() > 1 && b.terms.size() > 1) return collect(std::move(products));
  return products.size() > max_terms ? Poly::invalid() : Poly{std::move(products), true};
}

Poly ExprBuilder::pow(const Poly& a, uint32_t power) const {
  if (!a.valid) return a;
  if (power == 0) return constant(1);
  if (a.terms.size() > 1 && power >= max_terms) return Poly::invalid();  // has at least power + 1 terms
  if (a.terms.size() == 1) {
    Poly p = a;
    Term& t = p.terms[0];
    auto coefficient = checked_pow(t.coefficient, power);
    if (!coefficient) return Poly::invalid();
    t.coefficient = *coefficient;
    for (Factor& f : t.factors)
      if (__builtin_mul_overflow(f.power, power, &f.power)) return Poly::invalid();
    return p;
  }
  Poly result = constant(1), square = a;
  while (result.valid && square.valid) {
    if ((power & 1) != 0) result = mul(result, square);
    power >>= 1;
    if (power == 0) return result;
    square = mul(square, square);
  }
  return Poly::invalid();
}

}  // namespace sg
