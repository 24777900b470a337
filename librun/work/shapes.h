// Shapes and axes, for kernels on the processor and on devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "librun/kernel.h"

namespace sg {

// A tensor without axes as a vector of one element; others as they are.
Tensor with_axis(const Tensor& t);

// `t` with axis `axis` moved to the end; without axes, a row of one element.
Tensor axis_last(const Tensor& t, int64_t axis);

// Whether `t` broadcasts to a shape (PyTorch's rule; broadcast_to of tensor.h does).
bool broadcasts(const Tensor& t, std::span<const int64_t> shape);

// What both broadcast to. REQUIRES: they do.
std::vector<int64_t> broadcast_shape(const Tensor& a, const Tensor& b);

// Broadcasts `shape` and `t`, an index, with each other into `shape`.
Status broadcast_index(const KernelCall& call, std::vector<int64_t>* shape, const Tensor& t);

// Result `i` with a shape that the data has decided: given memory, or held against what the graph says.
Status result_of_shape(KernelCall& call, size_t i, std::span<const int64_t> shape);

// Elements in a row of `normalized_shape`.
int64_t normalized_length(const KernelCall& call);

// A probability that a kernel was given.
Status check_probability(const KernelCall& call, double p);

}  // namespace sg
