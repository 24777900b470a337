// What the rules of views share, in infer_views.cc. Internal to the rules.
#pragma once

#include "libgraph/infer/infer_call.h"

namespace sg::infer {

// The argument `self`, which must have so many dimensions.
Result<const Type*> ranked(InferCall& c, size_t at_least);

// Gives fresh tensors the shapes that a view rule gave.
Status made_fresh(InferCall& c, Status (*view_rule)(InferCall&));

}  // namespace sg::infer
