// The relations of captures: `Eq(u0+u1, 256)`, `0<=u0`, `2<=s0<=64`, `u0!=u1`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/job.h"

namespace sg {

std::string_view relation_sign(Relation r);                          // "==", "!=", "<", "<=", ">", ">="
std::string print_guard(const ExprPool& exprs, const Guard& guard);  // "2*n >= 182"
bool holds(Relation r, int64_t a, int64_t b);                        // whether a r b
Relation negated(Relation r);                                        // eq <-> ne, lt <-> ge, ...

// Reads one relation, as a call or infix; a chain `0<=u0<=5` gives one guard a link. The guards have no source.
// Errors give the column within `text`.
Result<std::vector<Guard>> parse_guards(Pool& pool, std::string_view text);

}  // namespace sg
