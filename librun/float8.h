// Which ops accept float8. PyTorch stores and converts it and multiplies matrices of it, but does not add or compare it
// like other numbers. So most kernels never see it, and `visit_dtype` has no case for it.
#pragma once

#include "libgraph/op.h"

namespace sg {

bool takes_float8(const OpInfo& op);

}  // namespace sg
