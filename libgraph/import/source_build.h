// From a source's graph to a Program: the second half of every importer but that of captures, by the same rules.
//
// Getitems  `python.getitem` with a constant index is folded into the node that it takes apart; its name and type
//           become those of the result.
// Names     are kept. A name that is taken, unknown, or used before its definition is an error with its place.
// Symbols   that nobody declares are declared as PyTorch names them: s0 a size of the inputs, u0
//           known from data only.
// Types     that the source does not say are inferred; what cannot be stays unknown, and the verifier says so.
// Ops       without a row of the op table are opaque; the tally says which.
// Cost      Linear, but for a hint after an unknown name.
#pragma once

#include "libgraph/import/import_tally.h"
#include "libgraph/import/source_graph.h"

namespace sg {

// Fills `program`, an empty one of `job`, whose Pool the source's ids refer to. Errors are `unreadable`.
Status build_program(const SourceProgram& source, const Job& job, ImportTally* tally, Program* program);

// The op table's name for a target as FX and torch.export print it: "torch.ops.aten.mm.default" is aten.mm.default,
// "_operator.add" and "operator.add" are python.add, "math.floor" stays.
std::string op_of_target(std::string_view target);

// An operator that runs its body once, and nothing else (a region without gradients, a region compiled once), is the
// call of it: makes `op` and `args` those of sg.call. False = any other operator.
bool call_body(std::string* op, std::vector<Arg>* args);

}  // namespace sg
