#include "libgraph/infer/infer_sizes.h"

#include <algorithm>

namespace sg {
namespace {

constexpr int kMaxDepth = 32;  // of nested floordiv, mod, min, max that bounds and rewriting look into
// Of guards that are solved: longer ones, and solutions that need others further on than this, are left aside.
constexpr size_t kMaxSolvedTerms = 64;
constexpr int kMaxRounds = 16;

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

// One number for an unordered pair of expressions.
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
  // A number from the data that is used as a size is at least 0, as PyTorch assumes when it is.
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
  // max: the best lower bound counts, every upper bound is needed; min the other way round.
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
      if (!low || *low < 0) return std::nullopt;  // signs would have to be told apart
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

// u0 + u1 == 20 says what u0 is: each equality, with what those before it say put in, gives one of its symbols.
void Sizes::solve() {
  if (solved_all_ || program_ == nullptr) return;
  solved_all_ = true;
  for (const Guard& g : program_->guards) {
    if (g.relation != Relation::eq) continue;
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
  return x == y && !exprs_.is_invalid(x);
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
    if (is(small, 0) || is(small, 1)) return lower(large).value_or(0) > 0 && !is(small, 0);
    Expr q = exprs_.floordiv(large, small);
    return !exprs_.is_invalid(q) && exprs_.mul(q, small) == large && lower(q).value_or(0) >= 1;
  };
  if (is_multiple(a, b)) return 1;
  return is_multiple(b, a) ? -1 : compare_at_capture(a, b);
}

// What PyTorch does with sizes of inputs: it compares their numbers, and guards.
int Sizes::compare_at_capture(Expr a, Expr b) {
  Bound x = at_capture(a), y = at_capture(b);
  return !x || !y || *x == *y ? 0 : *x < *y ? -1 : 1;
}

// None where a number that only the data decides has a part in it.
Bound Sizes::at_capture(Expr e) {
  return exprs_.evaluate(e, [&](StrId name) -> Bound {
    const Symbol* s = symbol(name);
    return s == nullptr || s->kind == SymbolKind::data ? std::nullopt : s->hint;
  });
}

Expr Sizes::at_least_one(Expr e) {
  if (auto value = constant(e)) return *value >= 1 ? e : number(1);
  if (auto it = at_least_one_.find(e); it != at_least_one_.end()) return it->second;
  // PyTorch simplifies the maximum away only for sizes that had a value at capture, whatever their range.
  bool positive = lower(e).value_or(0) >= 1 && !has_unbacked(e);
  Expr result = positive ? e : exprs_.max(number(1), e);
  at_least_one_.emplace(e, result);
  return result;
}

// Whether a symbol had no value at capture: PyTorch then assumes nothing about it.
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

Exprs Sizes::contiguous(const Exprs& shape) {
  Exprs stride(shape.size());
  Expr step = number(1);
  for (size_t i = shape.size(); i-- > 0;) {
    stride[i] = step;
    step = exprs_.mul(step, at_least_one(shape[i]));
  }
  return stride;
}

bool Sizes::is_contiguous(const Type& t) {
  Expr step = number(1);
  for (size_t i = t.shape.size(); i-- > 0;) {
    if (is(t.shape[i], 0)) return true;
    if (is(t.shape[i], 1)) continue;
    if (!same(t.stride[i], step)) return std::any_of(t.shape.begin(), t.shape.end(), [&](Expr s) { return is(s, 0); });
    step = exprs_.mul(step, t.shape[i]);
  }
  return true;
}

// Dimensions from the smallest stride to the largest; equal or unknown ones keep their order from the right.
std::vector<size_t> Sizes::by_stride(const Type& t) {
  std::vector<size_t> order;
  for (size_t i = t.shape.size(); i-- > 0;) {
    size_t at = order.size();
    while (at > 0 && compare(t.stride[order[at - 1]], t.stride[i]) > 0) --at;
    order.insert(order.begin() + static_cast<ptrdiff_t>(at), i);
  }
  return order;
}

bool Sizes::is_dense(const Type& t) {
  if (is_contiguous(t)) return true;
  Type counted = t;  // without the dimensions of size 1, whose strides mean nothing
  counted.shape.clear(), counted.stride.clear();
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (is(t.shape[i], 1)) continue;
    counted.shape.push_back(t.shape[i]), counted.stride.push_back(t.stride[i]);
  }
  Expr step = number(1);
  for (size_t dim : by_stride(counted)) {
    if (!same(counted.stride[dim], step)) return false;
    step = exprs_.mul(step, counted.shape[dim]);
  }
  return true;
}

Exprs Sizes::preserved(const Type& t) { return is_dense(t) ? t.stride : elementwise(t.shape, {&t}); }

Exprs Sizes::in_order_of(const Type& like, const Exprs& shape, bool empty_as_one) {
  Exprs stride(shape.size(), number(1));
  Expr step = number(1);
  for (size_t dim : by_stride(like)) {
    stride[dim] = step;
    step = exprs_.mul(step, empty_as_one ? at_least_one(shape[dim]) : shape[dim]);
  }
  return stride;
}

// Whether dimension a has to come further out than b: 1 yes, -1 no, 0 the operands do not say.
int Sizes::order(size_t a, size_t b, const Exprs& shape, const std::vector<Exprs>& strides) {
  for (const Exprs& stride : strides) {
    if (is(stride[a], 0) || is(stride[b], 0)) continue;
    int c = compare(stride[a], stride[b]);
    if (c != 0) return c;
    if (same(stride[a], stride[b]) && compare(shape[a], shape[b]) > 0) return 1;
  }
  return 0;
}

bool Sizes::is_dense_channels_last(const Type& t) {
  const size_t rank = t.shape.size();
  if (rank != 4 && rank != 5) return false;
  std::vector<size_t> order{1};  // from the innermost axis out
  for (size_t axis = rank - 1; axis >= 2; --axis) order.push_back(axis);
  order.push_back(0);
  Expr step = number(1);
  for (size_t axis : order) {
    if (is(t.shape[axis], 1)) continue;
    if (!same(t.stride[axis], step)) return false;
    step = exprs_.mul(step, t.shape[axis]);
  }
  return true;
}

Exprs Sizes::channels_last(const Exprs& shape) {
  Exprs moved = shape;  // batch, spatial dimensions, channels
  std::rotate(moved.begin() + 1, moved.begin() + 2, moved.end());
  Exprs stride = contiguous(moved);
  std::rotate(stride.begin() + 1, stride.end() - 1, stride.end());
  return stride;
}

Exprs Sizes::elementwise(const Exprs& shape, const std::vector<const Type*>& operands) {
  auto same_shape = [&](const Type* t) { return same(t->shape, shape); };
  if (!operands.empty() && std::all_of(operands.begin(), operands.end(), same_shape)) {
    if (std::all_of(operands.begin(), operands.end(), [&](const Type* t) { return is_contiguous(*t); }))
      return contiguous(shape);
    if (std::all_of(operands.begin(), operands.end(), [&](const Type* t) { return is_dense_channels_last(*t); }))
      return channels_last(shape);
    const Type& first = *operands[0];
    auto known = [&](Expr e) { return exprs_.is_constant(e); };
    if (std::all_of(shape.begin(), shape.end(), known) && is_dense(first) &&
        std::all_of(operands.begin(), operands.end(), [&](const Type* t) { return same(t->stride, first.stride); }))
      return first.stride;
  }
  std::vector<Exprs> strides;
  for (const Type* t : operands)
    if (auto expanded = expand_strides(*t, shape)) strides.push_back(std::move(*expanded));
  // Insertion sort from the innermost dimension; the comparison is not transitive, so the algorithm is part of the
  // rule.
  std::vector<size_t> perm;
  for (size_t i = shape.size(); i-- > 0;) perm.push_back(i);
  for (size_t i = 1; i < perm.size(); ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      int c = order(perm[j], perm[moving], shape, strides);
      if (c < 0) break;
      if (c == 0) continue;
      std::swap(perm[j], perm[moving]);
      moving = j;
    }
  }
  Exprs result(shape.size());
  Expr step = number(1);
  for (size_t dim : perm) {
    result[dim] = step;
    step = exprs_.mul(step, at_least_one(shape[dim]));
  }
  return result;
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
    size = is(x, 1) ? y : x;  // sizes that may be equal have to be: the first one's spelling stays
  }
  return shape;
}

std::optional<Exprs> Sizes::expand_strides(const Type& t, const Exprs& shape) {
  if (t.shape.size() > shape.size()) return std::nullopt;
  size_t skip = shape.size() - t.shape.size();
  Exprs stride(shape.size(), number(0));
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (is(t.shape[i], 1) && !is(shape[skip + i], 1)) continue;
    stride[skip + i] = t.stride[i];
  }
  return stride;
}

std::optional<Exprs> Sizes::view_strides(const Type& t, const Exprs& shape) {
  auto always = view_strides(t, shape, [&](Expr a, Expr b) { return same(a, b); });
  if (always) return always;
  auto implied = view_strides(t, shape, [&](Expr a, Expr b) { return same(a, b) || implied_equal(a, b); });
  if (implied) return implied;
  // What was so at capture, by guards that nobody wrote down.
  return view_strides(t, shape, [&](Expr a, Expr b) {
    Bound x = at_capture(a), y = at_capture(b);
    return same(a, b) || (x && x == y);
  });
}

template <typename Same>
std::optional<Exprs> Sizes::view_strides(const Type& t, const Exprs& shape, Same&& same) {
  if (std::any_of(t.shape.begin(), t.shape.end(), [&](Expr s) { return is(s, 0); }))
    return t.shape == shape ? t.stride : contiguous(shape);
  if (t.shape.empty()) return Exprs(shape.size(), number(1));
  if (this->same(t.shape, shape) && !is_contiguous(t)) return t.stride;
  bool symbolic = false;
  for (Expr size : shape) symbolic = symbolic || !constant(size);
  if (symbolic && is_contiguous(t)) return contiguous(shape);
  Exprs stride(shape.size(), number(1));
  size_t view = shape.size();  // the view's dimensions from here on have their stride
  Expr base = t.stride.back(), seen = number(1), placed = number(1);
  for (size_t dim = t.shape.size(); dim-- > 0;) {
    seen = exprs_.mul(seen, t.shape[dim]);
    bool ends = dim == 0 || (!is(t.shape[dim - 1], 1) && !same(t.stride[dim - 1], exprs_.mul(seen, base)));
    if (!ends) continue;
    while (view > 0 && (is(shape[view - 1], 1) || !same(placed, seen))) {
      auto x = constant(placed), y = constant(seen);
      if (x && y && *x > *y) return std::nullopt;
      --view;
      stride[view] = exprs_.mul(placed, base);
      placed = exprs_.mul(placed, shape[view]);
    }
    if (!same(placed, seen)) return std::nullopt;
    if (dim > 0) base = t.stride[dim - 1];
    seen = placed = number(1);
  }
  if (view != 0) return std::nullopt;
  // Leading dimensions that stay as they are keep their strides, those of size 1 too.
  for (size_t i = 0; !is_contiguous(t) && i < std::min(shape.size(), t.shape.size()) && t.shape[i] == shape[i]; ++i)
    stride[i] = t.stride[i];
  return stride;
}

}  // namespace sg
