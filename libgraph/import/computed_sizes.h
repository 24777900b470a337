// Sizes that are made of floats, such as TruncToInt(0.9*ToFloat(s0)), int(rows * 0.9) in Python: no expression of ours
// says them. Each gets a symbol of its own, which the node that computes the number binds: whoever runs the graph has
// it from there.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/job.h"

namespace sg {

struct ComputedSize {
  StrId symbol;
  std::string text;  // as the source has it
};

class ComputedSizes {
 public:
  // Of symbols: `s0` in FX annotations and in old archives, Symbol('s0') where sympy's constructors are written out.
  enum class Spelling : uint8_t { annotation, plain, constructors };

  // `text` with a symbol for each call that makes a whole number of floats; of one text always the same. What the
  // readers behind it know as a division of whole numbers stays: CeilToInt(IntTrueDiv(s0, 2)).
  std::string named(Pool* pool, std::string_view text, Spelling spelling);

  const std::vector<ComputedSize>& list() const { return list_; }

 private:
  std::map<std::string, size_t, std::less<>> by_text_;  // index into list_
  std::vector<ComputedSize> list_;
};

// Each of `sizes` that the program declares is bound by the first node whose result it is, a number or, where none is,
// a tensor of that size. Error: by none.
Status bind_computed(const std::vector<ComputedSize>& sizes, Program* program);

}  // namespace sg
