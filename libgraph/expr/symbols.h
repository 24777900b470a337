// Facts: what is known about the symbols of a program, from their declarations and the guards.
//
// What     Ranges of expressions, divisors, proofs of relations, and simplification under all of it.
// Sound    An answer holds for every assignment of integers to the symbols that satisfies declarations and guards (and
//          divides by nothing but non-zero). `unknown` is always a legal answer; yes and no are never wrong.
// Cost     Building is linear in the guards. Queries are bounded; on numbers and bare symbols they are a look-up.
// Owner    Refers to the program's Pool, which must outlive it. Queries intern atoms at most, `simplify` its result.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "libgraph/expr/interval.h"
#include "libgraph/job.h"

namespace sg {

struct Poly;

enum class Answer : uint8_t { unknown, no, yes };

class Facts {
 public:
  explicit Facts(const Program& program);
  ~Facts();
  Facts(Facts&&) noexcept;
  Facts(const Facts&) = delete;

  Interval range(Expr e) const;
  // The same by the ranges of symbols and atoms alone: wider, and at a fraction of the cost.
  Interval quick_range(Expr e) const;
  Interval range_of_symbol(StrId name) const;

  // The largest number that is known to divide every value of `e`; 0 when `e` is always 0.
  int64_t divisor(Expr e) const;

  Answer prove(Relation relation, Expr a, Expr b) const;
  bool prove_le(Expr a, Expr b) const { return prove(Relation::le, a, b) == Answer::yes; }

  // An expression that is equal under the facts: max(1, u0) is u0 when u0 >= 1. With `use_equalities`, symbols that
  // an Eq guard ties to others are replaced where the result is shorter.
  Expr simplify(Expr e, bool use_equalities = false) const;

  // Adds what was learnt elsewhere (libgraph/expr/range_infer.h). False when nothing got tighter.
  struct Bound {
    StrId symbol;
    Interval range;
  };
  bool tighten(std::span<const Bound> bounds);

  // Declarations and guards cannot all hold: found while narrowing ranges. Answers stay as they were before.
  bool contradictory() const { return contradictory_; }

 private:
  struct Constraint;  // a linear combination of monomials that is <= 0, == 0 or != 0
  struct Search;      // bounds of one expression
  class Simplifier;

  void learn_symbols(const Program& program);
  void learn_guard(const Guard& guard);
  void learn_equality(const Poly& difference);
  void narrow();
  bool narrow_with(const Poly& at_most_zero);
  bool narrow_symbol(StrId symbol, Interval range);

  Interval interval(const Poly& p) const;
  Interval interval_of_atom(uint32_t atom) const;
  int64_t divisor_of_atom(uint32_t atom) const;
  int64_t divisor_of(const Poly& p) const;
  Poly reduced(const Poly& p) const;  // with the equalities put in
  int64_t upper_bound(const Poly& p) const;
  Interval bounds(const Poly& p) const;
  bool is_never_zero(const Poly& p) const;

  Pool& pool_;
  std::unordered_map<StrId, Interval, IdHash> ranges_;
  std::unordered_map<StrId, int64_t, IdHash> divisors_;
  std::vector<Constraint> constraints_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> by_atom_;  // atom -> constraints that mention it
  std::unordered_map<StrId, Expr, IdHash> equal_to_;             // eliminated symbol -> the rest of its Eq guard
  mutable std::unordered_map<Expr, Interval, IdHash> known_;     // ranges already asked for
  bool contradictory_ = false;
};

}  // namespace sg
