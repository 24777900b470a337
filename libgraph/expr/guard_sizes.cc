#include "libgraph/expr/guard_sizes.h"

#include <algorithm>
#include <limits>

#include "libgraph/expr/guard_text.h"
#include "libgraph/expr/interval.h"

namespace sg {
namespace {

// Left less right.
std::optional<int64_t> difference(const ExprPool& exprs, const Guard& guard, const SizeValues& sizes) {
  const auto left = exprs.evaluate(guard.left, sizes), right = exprs.evaluate(guard.right, sizes);
  int64_t out = 0;
  if (!left || !right || __builtin_sub_overflow(*left, *right, &out)) return std::nullopt;
  return out;
}

bool is_line(const ExprPool& exprs, Expr side, StrId symbol) {
  if (exprs.is_invalid(side)) return false;
  for (const Term& term : exprs.terms(side)) {
    uint32_t power = 0;
    for (const Factor& factor : term.factors) {
      const Atom& atom = exprs.atom(factor.atom);
      if (atom.kind == AtomKind::symbol && atom.symbol == symbol) power += factor.power;
      for (Expr operand : atom.operands)
        if (exprs.mentions(operand, symbol)) return false;
    }
    if (power > 1) return false;
  }
  return true;
}

}  // namespace

std::optional<bool> meets(const Program& program, const Guard& guard, const SizeValues& sizes) {
  const auto apart = difference(program.graph.pool().exprs, guard, sizes);
  return apart ? std::optional(holds(guard.relation, *apart, 0)) : std::nullopt;
}

// Both sides at 0 and 1 give the lines, and where they meet is verified.
std::optional<int64_t> solution(const ExprPool& exprs, const Guard& guard, StrId symbol, const SizeValues& sizes) {
  if (guard.relation != Relation::eq || !is_line(exprs, guard.left, symbol) || !is_line(exprs, guard.right, symbol))
    return std::nullopt;
  const auto apart_at = [&](int64_t x) {
    return difference(exprs, guard, [&](StrId s) { return s == symbol ? std::optional(x) : sizes(s); });
  };
  const auto zero = apart_at(0), one = apart_at(1);
  int64_t slope = 0;
  if (!zero || !one || __builtin_sub_overflow(*zero, *one, &slope) || slope == 0) return std::nullopt;
  if (slope == -1 && *zero == std::numeric_limits<int64_t>::min()) return std::nullopt;
  const int64_t out = *zero / slope;
  return apart_at(out) == 0 ? std::optional(out) : std::nullopt;
}

std::optional<int64_t> size_that_meets(const Program& program, const Guard& guard, const Symbol& symbol,
                                       const SizeValues& sizes) {
  const auto number = solution(program.graph.pool().exprs, guard, symbol.name, sizes);
  if (!number || !Interval::of(symbol.min, symbol.max).contains(*number)) return std::nullopt;
  const SizeValues changed = [&](StrId s) { return s == symbol.name ? number : sizes(s); };
  const bool breaks = std::ranges::any_of(program.guards, [&](const Guard& other) {
    return meets(program, other, sizes) == true && meets(program, other, changed) == false;
  });
  return breaks ? std::nullopt : number;
}

}  // namespace sg
