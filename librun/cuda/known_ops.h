// Which steps of pointwise programs have rows in element_ops.def and near_ops.def, and their names.
#pragma once

#include <cstdint>
#include <string>

#include "librun/cpu/block/block.h"

namespace sg::cuda {

enum class KnownOp : uint8_t { none, value, test };  // a test's result is a flag

KnownOp known_op(cpu::BlockOp op, cpu::Lane lane);
// The name in element_ops.def.
std::string op_name(cpu::BlockOp op);
// Whether near_ops.def has it.
bool has_near_op(cpu::BlockOp op);

}  // namespace sg::cuda
