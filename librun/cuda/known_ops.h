// Which steps of pointwise programs element_ops.def has rows for, and what they are called.
#pragma once

#include <cstdint>
#include <string>

#include "librun/cpu/block/block.h"

namespace sg::cuda {

enum class KnownOp : uint8_t { none, value, test };  // a test's result is a flag

KnownOp known_op(cpu::BlockOp op, cpu::Lane lane);
// As element_ops.def has it.
std::string op_name(cpu::BlockOp op);

}  // namespace sg::cuda
