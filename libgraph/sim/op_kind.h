// Kinds of compute, by what limits them. The machine has an efficiency for each: what of the peak, or of the bandwidth,
// they reach.
#pragma once

#include <cstdint>
#include <string_view>

#include "libgraph/op.h"
#include "libgraph/sim/machine.h"

namespace sg {

enum class OpKind : uint8_t { matmul, grouped_matmul, convolution, attention, attention_backward, memory, irregular };
inline constexpr OpKind kOpKinds[] = {OpKind::matmul,    OpKind::grouped_matmul,     OpKind::convolution,
                                      OpKind::attention, OpKind::attention_backward, OpKind::memory,
                                      OpKind::irregular};

std::string_view name_of(OpKind kind);  // "matmul", as in `efficiency.matmul`
OpKind op_kind(const OpInfo* op);       // null = an op that the table does not know: memory
double& efficiency_of(Machine::Efficiency& efficiency, OpKind kind);

}  // namespace sg
