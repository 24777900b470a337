// Sizes in numbers: elements and bytes of a type, given a value for every symbol.
//
// All return none when a symbol has no value, a size is negative, or the result passes 63 bits.
#pragma once

#include <cstdint>
#include <optional>

#include "libgraph/pool.h"

namespace sg {

// The value to assume for a symbol; none = not known. See libgraph/expr/assume.h for the usual ones.
using SizeValues = ExprPool::Values;

std::optional<int64_t> evaluate_size(const Pool& pool, Expr e, const SizeValues& values);

// Logical elements of a tensor: the product of its shape.
std::optional<int64_t> element_count(const Pool& pool, const Type& type, const SizeValues& values);

// Bytes of the distinct elements of a tensor: what reading it once moves. Axes of stride 0 count once.
std::optional<int64_t> distinct_bytes(const Pool& pool, const Type& type, const SizeValues& values);

// Bytes of the memory that a tensor of this type needs when it owns it: up to its last element. The sum for a list of
// tensors, 0 for what holds no tensor.
std::optional<int64_t> storage_bytes(const Pool& pool, const Type& type, const SizeValues& values);

}  // namespace sg
