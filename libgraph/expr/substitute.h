// Numbers (or other expressions) for symbols, everywhere in a program: types, arguments, guards, metadata, shardings,
// nested graphs. Arguments that become constant become integers. Declarations stay: the caller knows which are still
// needed.
#pragma once

#include "libgraph/job.h"

namespace sg {

void substitute_symbols(Program* program, const ExprPool::Lookup& lookup);

}  // namespace sg
