// Parsing of the operator schemas of op.def.
#pragma once

#include "libgraph/op.h"

namespace sg {

// Fills params, results and returns_list of `op` from op->schema, whose text must outlive it.
Status parse_schema(OpInfo* op);

}  // namespace sg
