// The value of a parameter that a call leaves out, as the op's schema gives it.
#pragma once

#include "librun/kernel.h"

namespace sg {

// Absent where the schema's default is None, or where it has none.
ParamValue default_of(const Param& param);

}  // namespace sg
