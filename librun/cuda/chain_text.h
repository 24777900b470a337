// The steps of a pointwise program as C++ text: what a lane does for one element, with the functions of
// kernels/generated.h. Where elements lie, and how lanes come by them, is for who writes a kernel around it
// (generate.cc, generate_reduction.cc).
#pragma once

#include <span>
#include <string>

#include "librun/cpu/pointwise.h"

namespace sg::cuda {

// Expressions of the text for an element of a slot: what is read, and what is assigned.
struct SlotText {
  std::string from, to;
};

// False: a step has no row of element_ops.def, or there are more tensors than a kernel takes.
bool has_text(cpu::PointwiseProgram& program);

// A line a step, after `indent`; results are the variables that `value_name` says.
std::string steps_text(cpu::PointwiseProgram& program, std::span<const SlotText> slots, bool with_stores,
                       const std::string& indent);
std::string value_name(int reg);

// As an element lies in memory; as a value.
const char* raw_type(DType type);
const char* value_type(cpu::Lane lane);

// Where element `at` of the layout lies: an expression of numbers of `is_wide` ? int64_t : uint32_t.
std::string offset_text(const cpu::Layout& layout, const std::string& at, bool is_wide);
// Whether its numbers need 64 bits.
bool needs_wide_index(const Tensor& t);

// Exact, whatever the number is.
std::string number_text(double x, bool is_float);

}  // namespace sg::cuda
