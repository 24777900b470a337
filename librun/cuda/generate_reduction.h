// A chain of pointwise ops and the reduction of a value that it makes, as one kernel: text around the steps of the chain
// (chain_text.h), written with kernels/generated_reduce.h.
//
// Bits    are those of the two by themselves: values are rounded to their types before they are reduced, and blocks take
//         and merge them as the kernels of reductions.h do.
// Memory  A value that only the reduction reads is written nowhere. Others are stored by the lane that reduces them.
// Refused What would be slower as one: few long rows, for which the chain alone has more lanes than a reduction that does
//         not go by parts; and rows that lie across memory, where neighbouring lanes would read far from each other.
#pragma once

#include <optional>
#include <string>

#include "librun/cpu/pointwise.h"
#include "librun/cuda/reductions.h"

namespace sg::cuda {

struct GeneratedReduction {
  std::string text;
  ReductionPlan plan;
  std::vector<std::byte*> data;  // by slot
  // Results that lie where the chain reads or writes, so that no block may write there before all have ended.
  bool holds_back = false;
};

// Nothing: the call reduces no value of the chain, or not as one kernel.
Result<std::optional<GeneratedReduction>> generate_reduction(cpu::PointwiseProgram& chain, const KernelCall& call);

}  // namespace sg::cuda
