// Which sizes meet the conditions of a capture.
#pragma once

#include <cstdint>
#include <optional>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

// Whether the condition holds; none if it has a symbol without a size, or a number beyond 63 bits.
std::optional<bool> meets(const Program& program, const Guard& guard, const SizeValues& sizes);

// Of an equality whose sides are lines in `symbol`: the number by which it holds, all others as they are.
std::optional<int64_t> solution(const ExprPool& exprs, const Guard& guard, StrId symbol, const SizeValues& sizes);

// Another size for `symbol`, within its range, by which the guard holds that way, and each condition that held still
// does.
std::optional<int64_t> size_that_meets(const Program& program, const Guard& guard, const Symbol& symbol,
                                       const SizeValues& sizes);

}  // namespace sg
