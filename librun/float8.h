// Which ops take float8. PyTorch stores it, converts it and multiplies matrices of it; nothing adds or compares it as
// numbers of other types are. So most kernels never see it, and `visit_dtype` has no case for it.
#pragma once

#include "libgraph/op.h"

namespace sg {

bool takes_float8(const OpInfo& op);

}  // namespace sg
