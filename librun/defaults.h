// The default of a parameter that a call omits, from the op's schema.
#pragma once

#include "librun/kernel.h"

namespace sg {

// Absent if the schema's default is None, or if there is none.
ParamValue default_of(const Param& param);

}  // namespace sg
