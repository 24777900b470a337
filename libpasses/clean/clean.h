// sg-clean: the same results, without work that cannot affect them.
//
// Removed   dead code, by effects: a write to memory that may be read stays, asserts stay unless `drop-asserts`;
//           views that show the same elements in the same places; copies that are indistinguishable from their source;
//           chains of transposes and of reshapes become one; uses of a duplicate constant; unused symbols;
//           common subexpressions; writes to fresh memory that only one name refers to become functional; size
//           arithmetic with known results becomes numbers, and a size that an earlier node provides is taken from it;
//           duplicate unshard chains of one parameter are merged. With `fold-casts` also casts of bf16 and f16 to f32
//           that the following softmax can do itself: PyTorch supports that only for f16 on GPUs, so it is opt-in.
//           With `fold-losses` also log-probabilities that only a class loss and its gradient read.
// Kept      random ops keep their streams; copies made by remat and chunks are intentional; collectives are removed or
//           kept on all ranks of their group together; inputs and outputs stay in their places.
// Ranks     programs are cleaned independently, but an unshard is merged in all of them or in none.
// Results   bitwise equal. No planned peak grows, except that a merged unshard lives from its first to its last use,
//           and that a folded loss keeps one number per row. A second run changes nothing.
// Limits    bodies of calls are cleaned too, but nothing moves into or out of one. Equalities that hold only through a
//           symbol's run-time value are not used.
// Tests     golden/clean, passes/run_passes.py (bitwise, peaks, a second run), unit/pipeline_test.cc.
#pragma once

#include "libpasses/pass.h"

namespace sg {

extern const PassInfo clean_pass;

struct CleanOptions {
  bool drop_asserts = false;
  bool fold_casts = false;
  bool fold_losses = false;
};

Result<Change> clean(Job* job, const CleanOptions& options, PassContext& context);

}  // namespace sg
