// InputSizes: the numbers of a program's input symbols, from whoever knows them.
//
// Order    What the user binds (--bind) goes first, then the shapes of the tensors that are given, then what the
//          graph's equalities make of those, last the sizes of the capture. A number once known stays; `check` finds
//          contradictions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/expr/assume.h"
#include "libgraph/expr/size_binding.h"
#include "libgraph/job.h"

namespace sg {

// A name that no program of the job has, or a dimension that its input has not, is an error (usage).
Status check_bindings(const Job& job, std::span<const SizeBinding> bindings);

class InputSizes {
 public:
  explicit InputSizes(const Program& program);

  // A dimension that is an expression is solved for its one unknown symbol. Names of other programs' inputs are passed
  // over.
  Status bind(std::span<const SizeBinding> bindings);
  // Dimensions that are one bare symbol give it its value; the first value stays. REQUIRES: equal length
  void learn(std::span<const Expr> recorded, std::span<const int64_t> actual);
  // Symbols that an equality of the graph ties to known ones: those of which it has only one, linearly.
  void follow_guards();
  // What the graph computes of known sizes: goes before what equalities made of it.
  void settle(StrId symbol, int64_t value) { values_.set(symbol, value); }
  // What is left: the sizes of the capture, for as long as no equality says otherwise.
  void take_hints();

  const SymbolValues& values() const { return values_; }

  // Ranges, divisors and those guards of which all symbols are known.
  Status check() const;

 private:
  std::optional<int64_t> value(Expr e) const;
  Status set(StrId symbol, int64_t value, const SizeBinding& binding);
  Status solve(Expr size, const SizeBinding& binding);
  std::optional<StrId> only_unknown(const Guard& guard) const;

  const Program& program_;
  const ExprPool& exprs_;
  SymbolValues values_;
  std::vector<StrId> hinted_;  // by the capture alone
};

}  // namespace sg
