// Reductions: from a call to kernel arguments, whether the numbers come from memory (reductions.cc) or from a preceding
// chain of pointwise ops (generate_reduction.h). Both are planned the same way, and so have the same bits.
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
  double parameter = 0;       // as in ReduceHow
  DType first = DType::none;  // numbers are first converted to it
  Tensor to, mean, index;     // results; none = not wanted
};

// None: these kernels do not support it as a reduction, for its op or types.
std::optional<Reduction> find_reduction(const KernelCall& call);

// How blocks divide the work.
enum class ReduceWay : uint8_t {
  rows,          // one block or warp per result
  row_parts,     // several blocks per result
  column_parts,  // a block handles parts of 32 adjacent results
};

struct ReductionPlan {
  ReduceWay way = ReduceWay::rows;
  bool by_warps = false;           // for rows
  std::vector<int> kept, reduced;  // axes of `self`, in their order
  ReduceArgs args;
  Parts parts;  // without memory
  int64_t blocks = 0;
  double divisor = 1, power = 1;  // divisor for sums in parts; power for norms
};

// Number of blocks for that many rows of that length, where a warp or a block processes one row at a time.
bool rows_by_warps(int64_t length);
int64_t row_blocks(int64_t rows, int64_t length);

// REQUIRES: `self` matches the call's `self` in everything but its memory.
Result<ReductionPlan> plan_reduction(const KernelCall& call, const Reduction& reduction, const Tensor& self);

// --- sums in parts ---

// As many parts as give enough blocks, if each part has `blocks`, with at least `least` elements each. Without memory.
Parts parts_for(int64_t results, int64_t length, int64_t blocks, int64_t least);
int64_t tiles_of(int64_t columns);

}  // namespace sg::cuda
