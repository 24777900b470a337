// Memory formats as PyTorch reads them off strides: what an op keeps that asks its input for its memory format.
#pragma once

#include "libgraph/infer/infer_call.h"

namespace sg {

// Whether the strides are those of [batch, height, width, channels] (of 5 dimensions: with depth) in memory, by
// PyTorch's test: sizes of 1 and expanded axes included.
bool is_channels_last(Sizes& sizes, const Type& t);

// Strides over `shape` in the memory format of `like`: channels last where `like` has it, else row-major.
Exprs in_format_of(InferCall& c, const Type& like, const Exprs& shape);

// Result: a new tensor with the strides and offset of `self`; dense if elements of `self` share memory.
Status give_copy(InferCall& c, const Type& self);

}  // namespace sg
