// Shapes and axes, for kernels on the CPU and on devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "librun/kernel.h"

namespace sg {

// A tensor without axes as a vector of one element; other tensors unchanged.
Tensor with_axis(const Tensor& t);

// `t` with axis `axis` moved to the end; if it has no axes, a row of one element.
Tensor axis_last(const Tensor& t, int64_t axis);

// The axis of the channels before `axes` axes of planes, if channels are innermost in memory (PyTorch's channels_last)
// and enough for vectors of them: axis_last() of it is contiguous, and `t` is not. Else -1.
int inner_channels(const Tensor& t, int axes);

// Whether `t` broadcasts to a shape by PyTorch's rule; broadcast_to (tensor.h) then applies it.
bool broadcasts(const Tensor& t, std::span<const int64_t> shape);

// The shape that both broadcast to. REQUIRES: there is one.
std::vector<int64_t> broadcast_shape(const Tensor& a, const Tensor& b);

// Broadcasts `shape` and the shape of `t`, an index, together into `shape`.
Status broadcast_index(const KernelCall& call, std::vector<int64_t>* shape, const Tensor& t);

// Gives result `i` a data-dependent shape: allocates it, or checks it against what the graph says.
Status result_of_shape(KernelCall& call, size_t i, std::span<const int64_t> shape);

// Of an op that may look at slices along `dim`: whether it gives result `i`, asked for by `flag`. On the CPU, PyTorch
// gives places and counts of slices unasked, and the result's type says so.
bool is_slice_result(KernelCall& call, std::string_view flag, size_t i);

// Number of elements of `normalized_shape`.
int64_t normalized_length(const KernelCall& call);

// Fails if p is not a probability.
Status check_probability(const KernelCall& call, double p);

// Of a distribution: fails if the parameter is not above 0, or, where `may_be_zero`, below it.
Status check_spread(const KernelCall& call, std::string_view parameter, bool may_be_zero);
// Fails if there is no number between the parameters `from` and `to`.
Status check_interval(const KernelCall& call);
// Fails if the result's element type does not hold all of [low, high).
Status check_whole_range(const KernelCall& call, int64_t low, int64_t high);

}  // namespace sg
