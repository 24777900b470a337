// The rules by family, and the lowerings that they share.
#pragma once

#include <span>

#include "librun/cpu/pointwise_rules.h"

namespace sg::cpu {

std::span<const PointwiseRule> arithmetic_rules();  // also comparisons and logic
std::span<const PointwiseRule> function_rules();    // elementary functions, complex numbers
std::span<const PointwiseRule> activation_rules();
std::span<const PointwiseRule> special_rules();  // special functions, the rarer arithmetic and activations
std::span<const PointwiseRule> copy_rules();     // copies, conversions, fills, selections

Value lower_plain(PointwiseCall& c);  // the rule's block function of its operands, in their common type
Value lower_test(PointwiseCall& c);   // the same with a bool result
Value lower_real(PointwiseCall& c);   // the same with a real result, including for complex operands

}  // namespace sg::cpu
