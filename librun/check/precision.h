// The narrowest float type involved in computing a value: it determines how close two correct results must be.
//
// A gradient stored as f32 but computed through bf16 activations carries bf16's rounding errors. Everything that a
// value is computed from counts: arguments, what was written into their memory before they are read, the bodies of
// calls and higher-order ops, and graph inputs.
#pragma once

#include <vector>

#include "libgraph/facts/alias.h"
#include "libgraph/job.h"

namespace sg {

// By value of the program's graph; none = no float is involved. Linear in the size of the graph and its bodies. For an
// input: the narrowest of the input itself and of everything written to it.
std::vector<DType> narrowest_floats(const Program& program, const AliasAnalysis& alias);

// Significand bits, including the hidden one: f64 53, f32 24, f16 11, bf16 8; for complex types those of their parts; 0
// for other types.
int significand_bits(DType t);

}  // namespace sg
