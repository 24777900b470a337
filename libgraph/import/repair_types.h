// Recorded types that cannot be: what a recorder is known to get wrong is put right before the graph is used.
//
// Binds    A result that defines a data-dependent symbol has that symbol as its value, whatever number was recorded:
//          the number is the hint of the capture, and a run has another. Of two nodes that read the same value, and so
//          were given the same symbol, the first defines it.
// Faults   A type that contradicts its op's rule in a way that is the recorder's known fault (type_exceptions) takes
//          the type that the rule gives; so does every type behind a repaired one that contradicts its rule then.
// All else stays as recorded, right or wrong: the verifier judges it.
#pragma once

#include <cstddef>

#include "libgraph/job.h"

namespace sg {

// How many faults there were; what lies behind them, and numbers that became symbols, are not counted.
size_t repair_recorded_types(Program& program);

}  // namespace sg
