// The steps of a pointwise program as C++ text: what a lane does for one element, with the functions of
// kernels/generated.h. The kernel around it (generate.cc, generate_reduction.cc) determines where elements are, and
// which lane handles them.
#pragma once

#include <span>
#include <string>

#include "librun/cpu/pointwise.h"

namespace sg::cuda {

// Expressions for an element of a slot: the one read, and the one assigned to.
struct SlotText {
  std::string from, to;
};

// False: a step has no row in element_ops.def, or there are more tensors than a kernel takes.
bool has_text(cpu::PointwiseProgram& program);

// One line per step, each preceded by `indent`; results are the variables named by `value_name`. `result` is the
// register that the text behind them reads; -1 for none.
std::string steps_text(cpu::PointwiseProgram& program, std::span<const SlotText> slots, bool with_stores,
                       const std::string& indent, int result = -1);
std::string value_name(int reg);

// The type of an element in memory, and as a value.
const char* raw_type(DType type);
const char* value_type(cpu::Lane lane);

// The offset of element `at` of the layout, as an expression of type `is_wide` ? int64_t : uint32_t.
std::string offset_text(const cpu::Layout& layout, const std::string& at, bool is_wide);
// Whether its offsets need 64 bits.
bool needs_wide_index(const Tensor& t);

// An exact literal of any number.
std::string number_text(double x, bool is_float);

}  // namespace sg::cuda
