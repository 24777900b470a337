// Internal to symbols*.cc.
#pragma once

#include <utility>

#include "libgraph/expr/expr_builder.h"
#include "libgraph/expr/symbols.h"

namespace sg {

struct Facts::Constraint {
  enum class Kind : uint8_t { at_most_zero, zero, not_zero };
  Poly left;
  Kind kind = Kind::at_most_zero;
};

// Upper bounds of one expression, by replacing it with expressions that are at least as large. A small, bounded
// search: the sum of the intervals of its terms is the first answer; each step subtracts a guard that shares a term,
// or takes an operand of a min or max, or multiplies a floordiv out.
struct Facts::Search {
  const Facts& facts;
  ExprBuilder builder;
  int steps = 96;   // expressions
  int looks = 512;  // guards

  int64_t upper_bound(const Poly& p, int depth);

 private:
  void try_constraints(const Poly& p, int depth, int64_t* best);
  int64_t minus_constraint(const Poly& p, const Poly& at_most_zero, int depth);
  void try_atoms(const Poly& p, int depth, int64_t* best);
  int64_t with_operands(const Poly& p, size_t term, bool all, int depth);
  int64_t without_floordiv(const Poly& p, size_t term, int depth);
};

}  // namespace sg
