// The inference rules by name: one function a distinct word in op.def's infer column, defined in infer_<family>.cc.
#pragma once

#include "libgraph/infer/infer_call.h"

namespace sg::infer {

Status none(InferCall& c);  // for a row that has no rule; at present every row has one

// Declares every rule that the table names, as often as the table names it.
#define SG_OP(name, schema, traits, infer_rule, cost_rule, chunk_rule, linear_in) Status infer_rule(InferCall& c);
#include "libgraph/op.def"
#undef SG_OP

}  // namespace sg::infer
