// Random expressions as trees that are evaluated on their own: what normal forms and proofs are held against.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "libgraph/expr/expr.h"

namespace sg::test {

struct Tree {
  enum Op { number, symbol, add, sub, mul, neg, pow, floordiv, mod, min, max } op = number;
  int64_t value = 0;  // number, index of the symbol, exponent
  std::vector<Tree> sides;
};

inline constexpr int kSymbols = 4;
inline constexpr const char* kNames[kSymbols] = {"u2", "u10", "s0", "s1"};

inline Tree random_tree(std::mt19937& rng, int depth) {
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  Tree t;
  if (depth == 0 || pick(6) == 0) {
    t.op = pick(2) != 0 ? Tree::symbol : Tree::number;
    t.value = t.op == Tree::symbol ? pick(kSymbols) : pick(4) == 0 ? pick(200) - 100 : pick(9) - 2;
    return t;
  }
  t.op = static_cast<Tree::Op>(Tree::add + pick(9));
  t.sides.push_back(random_tree(rng, depth - 1));
  if (t.op == Tree::pow) t.value = pick(4);
  if (t.op != Tree::pow && t.op != Tree::neg) t.sides.push_back(random_tree(rng, depth - 1));
  // Divisors are mostly numbers, as in real graphs.
  if ((t.op == Tree::floordiv || t.op == Tree::mod) && pick(4) != 0) t.sides[1] = {Tree::number, pick(13) - 3, {}};
  return t;
}

inline Expr build(ExprPool& pool, const Tree& t) {
  if (t.op == Tree::number) return pool.constant(t.value);
  if (t.op == Tree::symbol) return pool.symbol(kNames[t.value]);
  Expr a = build(pool, t.sides[0]);
  if (t.op == Tree::neg) return pool.neg(a);
  if (t.op == Tree::pow) return pool.pow(a, static_cast<uint32_t>(t.value));
  Expr b = build(pool, t.sides[1]);
  switch (t.op) {
    case Tree::add: return pool.add(a, b);
    case Tree::sub: return pool.sub(a, b);
    case Tree::mul: return pool.mul(a, b);
    case Tree::floordiv: return pool.floordiv(a, b);
    case Tree::mod: return pool.mod(a, b);
    case Tree::min: return pool.min(a, b);
    default: return pool.max(a, b);
  }
}

// Rounds down by stepping from the quotient that rounds towards zero.
inline std::optional<int64_t> python_floordiv(int64_t a, int64_t b) {
  if (b == 0) return std::nullopt;
  int64_t q = a / b;
  while ((q * b > a) == (b > 0) && q * b != a) --q;
  return q;
}

inline std::optional<int64_t> evaluate(const Tree& t, const int64_t* values) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  if (t.op == Tree::number) return t.value;
  if (t.op == Tree::symbol) return values[t.value];
  auto a = evaluate(t.sides[0], values);
  if (!a || *a > kLimit || *a < -kLimit) return std::nullopt;
  if (t.op == Tree::neg) return -*a;
  if (t.op == Tree::pow) {
    int64_t r = 1;
    for (int64_t i = 0; i < t.value; ++i)
      if (__builtin_mul_overflow(r, *a, &r)) return std::nullopt;
    return r;
  }
  auto b = evaluate(t.sides[1], values);
  if (!b || *b > kLimit || *b < -kLimit) return std::nullopt;
  int64_t r = 0;
  switch (t.op) {
    case Tree::add: return *a + *b;
    case Tree::sub: return *a - *b;
    case Tree::mul: return __builtin_mul_overflow(*a, *b, &r) ? std::nullopt : std::optional(r);
    case Tree::floordiv: return python_floordiv(*a, *b);
    case Tree::mod: return *b == 0 ? std::nullopt : std::optional(*a - *b * *python_floordiv(*a, *b));
    case Tree::min: return std::min(*a, *b);
    default: return std::max(*a, *b);
  }
}

// Values for the symbols of kNames.
inline ExprPool::Values values_of(const StringTable& strings, const int64_t* values) {
  return [&strings, values](StrId name) -> std::optional<int64_t> {
    for (int i = 0; i < kSymbols; ++i)
      if (strings[name] == kNames[i]) return values[i];
    return std::nullopt;
  };
}

}  // namespace sg::test
