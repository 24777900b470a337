// What an op wants of its arguments one by one, before its rule holds their sizes against each other: element types,
// words, and numbers of small ranges. One table for all ops; docs/op-table.md says how to write a row.
#pragma once

#include "libgraph/infer/infer_call.h"

namespace sg::infer {

// Holds the arguments against the table's row for the op, and sees to it that what stands for a tensor is one
// (pointwise ops take numbers there). Everything that a kernel trusts about one argument alone is checked here.
Status check_expectations(const InferCall& c);
// After the rule: whether numbers that the call casts to the result's type are some that this type has.
Status check_result_numbers(const InferCall& c);

}  // namespace sg::infer
