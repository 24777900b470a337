// A chain of pointwise ops and the reduction of one of its values as one kernel: text around the steps of the chain
// (row_text.h), using kernels/generated_reduce.h.
//
// Bits    are those of the separate calls: values are rounded to their types before they are reduced, and blocks
//         accumulate and merge them like the kernels of reductions.h.
// Memory  A value that only the reduction reads is never written. Others are stored by the lane that reduces them.
// Rows    Later stages may be in the kernel, too: chains over the rows' results or over the same rows, and their
//         reductions. A stage reads the results of an earlier one from memory, written by the block of the same row; so
//         no row may access there what another row reads or writes.
// Refused Cases that would be slower as one kernel: few long rows, for which the chain alone has more lanes than a
//         reduction that does not go by parts; and rows with large strides, where adjacent lanes would read far from
//         each other.
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
  // Results overlap memory that the chain reads or writes, so no block may write them before all have finished.
  bool holds_back = false;
};

// None: the call does not reduce a value of the chain, or not as one kernel.
Result<std::optional<GeneratedReduction>> generate_reduction(cpu::PointwiseProgram& chain, const KernelCall& call);

struct GeneratedRows {
  std::string text;
  std::vector<std::byte*> data;  // by slot
  std::vector<ReduceTo> to;      // by reduction
  int64_t rows = 0, blocks = 0;
};

// The first stage has a reduction. None: the stages are not over the same rows, or rows would conflict.
Result<std::optional<GeneratedRows>> generate_rows(std::span<const RowStage> stages);

}  // namespace sg::cuda
