// Resampling along axes: each position of the result is a weighted sum of a few positions of the input (taps), along
// one axis after the other. Averages over windows, interpolations and pads are expressed as taps, their gradients as
// transposed taps.
#pragma once

#include <vector>

#include "librun/kernel.h"

namespace sg::cpu {

// For one axis: position i of the result sums weight[t] * input[index[t]] for begin[i] <= t < begin[i + 1].
struct Taps {
  int64_t in = 0;  // sizes of the axis before and after
  std::vector<int64_t> begin{0};
  std::vector<int64_t> index;
  std::vector<double> weight;

  int64_t out() const { return static_cast<int64_t>(begin.size()) - 1; }
  void add(int64_t at, double w) { index.push_back(at), weight.push_back(w); }
  void end_position() { begin.push_back(static_cast<int64_t>(index.size())); }
};

Taps transposed(const Taps& taps);

// result = input with its last taps.size() axes resampled, in double (complex numbers: both parts). Fails if the shapes
// do not match the taps.
Status resample(KernelCall& call, const Tensor& result, const Tensor& input, const std::vector<Taps>& taps);

// The same if every position has one tap of weight 1: elements of any type are copied. An index of -1 gives 0.
Status pick(KernelCall& call, const Tensor& result, const Tensor& input, const std::vector<Taps>& taps);

// Numbers for `axes` axes from a list with one or `axes` entries; `otherwise` if there is none.
Result<std::vector<int64_t>> numbers_of(KernelCall& call, std::string_view name, int axes, int64_t otherwise);

// The number of axes in the op's name: 2 for aten.max_pool2d_with_indices.
int plane_axes(const KernelCall& call);

// Fails unless `t` has this shape: the type rule cannot check sizes known only in the run.
Status expect_shape(const KernelCall& call, std::string_view name, const Tensor& t, std::span<const int64_t> shape);

}  // namespace sg::cpu
