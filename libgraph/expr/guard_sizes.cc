#include "libgraph/expr/guard_sizes.h"

#include <algorithm>
#include <limits>

#include "libgraph/expr/guard_text.h"
#include "libgraph/expr/interval.h"

namespace sg {
namespace {

// Left less right.
std::optional<int64_t> difference(const Program& program, const Guard& guard, const SizeValues& sizes) {
  const ExprPool& exprs = program.graph.pool().exprs;
  const auto left = exprs.evaluate(guard.left, sizes), right = exprs.evaluate(guard.right, sizes);
  int64_t out = 0;
  if (!left || !right || __builtin_sub_overflow(*left, *right, &out)) return std::nullopt;
  return out;
}

}  // namespace

std::optional<bool> meets(const Program& program, const Guard& guard, const SizeValues& sizes) {
  const auto apart = difference(program, guard, sizes);
  return apart ? std::optional(holds(guard.relation, *apart, 0)) : std::nullopt;
}

std::optional<int64_t> size_that_meets(const Program& program, const Guard& guard, const Symbol& symbol,
                                       const SizeValues& sizes) {
  if (guard.relation != Relation::eq) return std::nullopt;
  int64_t number = 0;
  const SizeValues with_number = [&](StrId s) { return s == symbol.name ? std::optional(number) : sizes(s); };
  const auto none = difference(program, guard, with_number);
  number = 1;
  const auto one = difference(program, guard, with_number);
  int64_t slope = 0;
  if (!none || !one || __builtin_sub_overflow(*one, *none, &slope)) return std::nullopt;
  if (slope == 0 || *none == std::numeric_limits<int64_t>::min() || *none % slope != 0) return std::nullopt;
  number = -(*none / slope);
  if (!Interval::of(symbol.min, symbol.max).contains(number) || meets(program, guard, with_number) != true)
    return std::nullopt;
  const bool breaks = std::ranges::any_of(program.guards, [&](const Guard& other) {
    return meets(program, other, sizes) == true && meets(program, other, with_number) == false;
  });
  return breaks ? std::nullopt : std::optional(number);
}

}  // namespace sg
