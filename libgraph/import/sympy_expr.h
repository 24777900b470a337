// Expressions as torch.export writes them: sympy's constructor calls,
//
//   Add(Symbol('s77', positive=True, integer=True), Integer(1))
//   StrictGreaterThan(Symbol('u0', integer=True), Integer(1))
//
// or, in older archives, sympy's plain spelling (`s77 + 1`), which ExprPool::parse reads.
//
// Limits   Depth and length are bounded. Errors give the column within the text. What has no place among our
//          expressions (rationals, floats, true division, Piecewise) is an error, too.
#pragma once

#include <string_view>
#include <vector>

#include "libgraph/job.h"

namespace sg {

Result<Expr> parse_sympy(Pool* pool, std::string_view text);

// Relations; And(...) gives one guard each. The guards have no source.
Result<std::vector<Guard>> parse_sympy_guards(Pool* pool, std::string_view text);

}  // namespace sg
