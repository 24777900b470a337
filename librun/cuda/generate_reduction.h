// A chain of pointwise ops and the reduction of a value that it makes, as one kernel: text around the steps of the
// chain (row_text.h), written with kernels/generated_reduce.h.
//
// Bits    are those of the two by themselves: values are rounded to their types before they are reduced, and blocks
//         take and merge them as the kernels of reductions.h do.
// Memory  A value that only the reduction reads is written nowhere. Others are stored by the lane that reduces them.
// Rows    What comes behind may be in the kernel, too: chains over the rows' results, over the same rows, and their
//         reductions. A stage finds what an earlier one has made where the graph has it, in memory, written by the
//         block of the row: so none may touch there what another row reads or writes.
// Refused What would be slower as one: few long rows, for which the chain alone has more lanes than a reduction that
//         does not go by parts; and rows that lie across memory, where neighbouring lanes would read far from each
//         other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "librun/backend.h"
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

struct GeneratedRows {
  std::string text;
  std::vector<std::byte*> data;  // by slot
  std::vector<ReduceTo> to;      // by reduction
  int64_t rows = 0, blocks = 0;
};

// The first stage has a reduction. Nothing: they are not over the same rows, or rows would meet.
Result<std::optional<GeneratedRows>> generate_rows(std::span<const RowStage> stages);

}  // namespace sg::cuda
