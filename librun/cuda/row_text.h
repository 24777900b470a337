// A chain over rows as functions of the text: element `at` of row `row`, where the axes of its tensors are split into
// those that number rows and those along a row.
#pragma once

#include <string>
#include <vector>

#include "librun/cpu/pointwise.h"
#include "librun/cuda/kernels/reduce_row.h"

namespace sg::cuda {

// A chain whose tensors are seen under one shape.
struct RowChain {
  cpu::PointwiseProgram* program = nullptr;
  std::vector<Tensor> slots;       // as the program has them, under that shape
  std::vector<int> kept, reduced;  // axes, in the order in which rows, and the numbers of a row, are counted
  size_t first_slot = 0;           // in the kernel's arguments

  // Nothing: a tensor cannot be seen so.
  static std::optional<RowChain> under(cpu::PointwiseProgram& program, std::span<const int64_t> shape,
                                       std::vector<int> kept, std::vector<int> reduced);
};

// Its pointers, p0 and so on, by the numbers of slots in the arguments.
std::string pointers_text(const RowChain& chain);
// auto NAME = [&](row, at): does the steps; gives `value`, if there is one.
std::string element_text(const RowChain& chain, const std::string& name, bool with_stores, const cpu::Value* value);
// const ReduceHow NAME.
std::string how_text(const ReduceHow& how, const std::string& name);

}  // namespace sg::cuda
