// Pointwise programs as C++ text: one kernel per chain, using kernels/generated.h.
//
// Bits    are those of the interpreter (kernels/pointwise.h): the same rows of element_ops.def, step by step, rounded
//         where the program rounds; nothing is contracted.
// Text    depends only on ops, types, shapes and strides, not on addresses, so repeated layers share a kernel. Sizes
//         are literals, so that divisions by them become multiplications.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "librun/cpu/pointwise.h"

namespace sg::cuda {

struct GeneratedChain {
  std::string text;
  int width = 1;  // elements that a lane processes at a time
  int64_t elements = 0;
  std::vector<std::byte*> data;  // by slot
};

inline constexpr const char* kGeneratedKernel = "sg_chain";

// None: a step has no row, or there are more tensors than a kernel takes.
std::optional<GeneratedChain> generate_chain(cpu::PointwiseProgram& program);

}  // namespace sg::cuda
