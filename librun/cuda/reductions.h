// Reductions: from a call to what kernels take, whoever makes the numbers: memory (reductions.cc), or a chain of
// pointwise ops before them (generate_reduction.h). Both go the same way, so both have the same bits.
#pragma once

#include <optional>
#include <vector>

#include "librun/cuda/kernels/reduce.h"
#include "librun/cuda/kernels/sum_parts.h"
#include "librun/kernel.h"

namespace sg::cuda {

// A call as a reduction of `self`.
struct Reduction {
  Reduce kind = Reduce::sum;
  std::vector<int> axes;      // empty: all
  double parameter = 0;       // as of ReduceHow
  DType first = DType::none;  // numbers are converted to it before
  Tensor to, mean, index;     // results; none = nobody wants it
};

// Nothing: it is no reduction of these kernels, for its types.
std::optional<Reduction> find_reduction(const KernelCall& call);

// Which blocks add up what.
enum class ReduceWay : uint8_t {
  rows,          // a block a result, or a warp
  row_parts,     // several blocks a result
  column_parts,  // a block has parts of 32 results that lie next to each other
};

struct ReductionPlan {
  ReduceWay way = ReduceWay::rows;
  bool by_warps = false;           // of rows
  std::vector<int> kept, reduced;  // axes of `self`, in their order
  ReduceArgs args;
  Parts parts;  // without memory
  int64_t blocks = 0;
  double divisor = 1, power = 1;  // of sums in parts; of norms
};

// Blocks for so many rows of that length, of which a warp or a block has one at a time.
bool rows_by_warps(int64_t length);
int64_t row_blocks(int64_t rows, int64_t length);

// REQUIRES: `self` has what the call's `self` has but for memory.
Result<ReductionPlan> plan_reduction(const KernelCall& call, const Reduction& reduction, const Tensor& self);

// --- sums in parts ---

// As many parts as give enough blocks, where each has `blocks`, of at least `least` numbers each. Without memory.
Parts parts_for(int64_t results, int64_t length, int64_t blocks, int64_t least);
int64_t tiles_of(int64_t columns);

}  // namespace sg::cuda
