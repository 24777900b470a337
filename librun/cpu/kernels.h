// The CPU kernels by family: each file of librun/cpu gives its rows, kernels.cc puts them into one table.
#pragma once

#include <span>

#include "librun/kernel.h"

namespace sg::cpu {

std::span<const KernelRow> pointwise_kernels();    // pointwise_rules.cc
std::span<const KernelRow> attention_kernels();    // attention_ops.cc: scaled dot product attention by its names
std::span<const KernelRow> factory_kernels();      // factory.cc: empty, zeros, full, arange, ...
std::span<const KernelRow> grouped_mm_kernels();   // grouped_mm.cc
std::span<const KernelRow> matmul_kernels();       // matmul.cc: mm, addmm, bmm, linear, ...

}  // namespace sg::cpu
