// One program against another; private to the diff.
#pragma once

#include "libgraph/diff/diff.h"
#include "libgraph/diff/diff_nodes.h"

namespace sg {

// Edits of symbols, guards and graphs. Explanations included.
ProgramDiff diff_programs(const Job& a, const Program& program_a, const Job& b, const Program& program_b,
                          const DiffOptions& options, const std::vector<GroupId>& group_of_a, DiffPrinters* print);

// Finds what the edits amount to, and points them at it.
void explain_edits(const Job& a, const Job& b, const ProgramDiff& program, GraphDiff* diff);

}  // namespace sg
