// A chain over rows as functions in the text: element `at` of row `row`. The axes of its tensors are split into those
// that number rows and those along a row.
#pragma once

#include <string>
#include <vector>

#include "librun/cpu/pointwise.h"
#include "librun/cuda/kernels/reduce_row.h"

namespace sg::cuda {

// A chain whose tensors are all viewed in one shape.
struct RowChain {
  cpu::PointwiseProgram* program = nullptr;
  std::vector<Tensor> slots;       // as in the program, viewed in that shape
  std::vector<int> kept, reduced;  // axes, in the order in which rows, and the elements of a row, are numbered
  size_t first_slot = 0;           // index in the kernel's arguments

  // None: a tensor cannot be viewed like this.
  static std::optional<RowChain> under(cpu::PointwiseProgram& program, std::span<const int64_t> shape,
                                       std::vector<int> kept, std::vector<int> reduced);
};

// Its pointers, p0 and so on, numbered by slots in the arguments.
std::string pointers_text(const RowChain& chain);
// auto NAME = [&](row, at): executes the steps and returns `value`, if there is one.
std::string element_text(const RowChain& chain, const std::string& name, bool with_stores, const cpu::Value* value);
// const ReduceHow NAME.
std::string how_text(const ReduceHow& how, const std::string& name);

}  // namespace sg::cuda
