// The narrowest float type on the way to a value: what decides how close two right answers must be.
//
// A gradient that is stored as f32 but was computed through bf16 activations carries bf16's roundings. On the way to a
// value lies everything that it is computed from: arguments, what was written into their memory before they are read,
// the bodies of calls and higher-order ops, and the inputs of the graph.
#pragma once

#include <vector>

#include "libgraph/alias.h"
#include "libgraph/job.h"

namespace sg {

// By value of the program's graph; none = no float is involved. Linear in the size of the graph and its bodies.
// For inputs: the narrowest of the input itself and of all that is written into it.
std::vector<DType> narrowest_floats(const Program& program, const AliasAnalysis& alias);

// Bits of the significand, the hidden one included: f64 53, f32 24, f16 11, bf16 8; complex types as their parts; 0 for
// what is no float.
int significand_bits(DType t);

}  // namespace sg
