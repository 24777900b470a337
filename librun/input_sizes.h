// InputSizes: the symbolic sizes of a program's inputs, from the shapes of the tensors that it is given.
#pragma once

#include <span>

#include "libgraph/assume.h"
#include "libgraph/job.h"

namespace sg {

class InputSizes {
 public:
  explicit InputSizes(const Program& program);

  // Dimensions that are one bare symbol give it its value; the first value stays. REQUIRES: equal length
  void learn(std::span<const Expr> recorded, std::span<const int64_t> actual);
  // Symbols that an equality of the graph ties to known ones.
  void follow_guards();
  // What is left: the sizes of the capture, for as long as no equality says otherwise.
  void take_hints();

  const SymbolValues& values() const { return values_; }

  // Ranges, divisors and those guards of which all symbols are known.
  Status check() const;

 private:
  std::optional<int64_t> value(Expr e) const;
  std::string print(const Guard& guard) const;

  const Program& program_;
  const ExprPool& exprs_;
  SymbolValues values_;
};

}  // namespace sg
