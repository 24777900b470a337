// --assume, for every tool that has it: numbers for symbolic sizes.
#pragma once

#include <optional>
#include <vector>

#include "libgraph/expr/assume.h"
#include "libgraph/expr/sizes.h"
#include "tools/cli/cli.h"

namespace sg::cli {

inline constexpr Option kAssume = {"assume", 0,   "balanced|max|SYMBOL=N", "numbers for symbols (default: balanced)",
                                   {},       true};

// By program. Fails where a symbol that nothing bounds has no number.
Result<std::vector<SymbolValues>> assumed_values(const Args& args, const Job& job);

// The same for tools that can say less: without --assume such a symbol is no error, and there are no values at all.
Result<std::optional<std::vector<SymbolValues>>> assumed_values_if_known(const Args& args, const Job& job);

// These of one program, for as long as that lives.
Result<SizeValues> assumed_sizes_if_known(const Args& args, const Job& job, const Program* program);

}  // namespace sg::cli
