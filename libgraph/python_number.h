// Arithmetic of Python's numbers, as ops named python.* have it: whole numbers are exact and checked, division rounds
// as Python's does.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "libgraph/scalar.h"

namespace sg {

// What `op` ("add", of python.add) gives for its arguments in their order, the items of a list one by one. None where
// Python raises an error, where a whole number does not fit, and of an op that is no arithmetic.
std::optional<Scalar> python_number(std::string_view op, std::span<const Scalar> given);

}  // namespace sg
