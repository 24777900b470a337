// sg-clean: what a graph computes, without what nobody sees.
//
// Removed   dead code, by effects: a write to memory that somebody may read stays, asserts stay unless `drop-asserts`;
//           views that show the same elements in the same places; copies that nobody could tell from what they copy;
//           chains of transposes and of reshapes as one; uses of a constant that is given twice; symbols that nobody
//           speaks of; common subexpressions; writes to fresh memory that only one name sees become functional; size
//           arithmetic with known results becomes numbers, and a size that an earlier node says is read there; unshard
//           chains of one parameter that occur twice are one. With `fold-casts` also casts of halves to f32 that the
//           softmax behind them does itself: PyTorch does so for f16 on GPUs alone, so it is asked for. With `fold-losses`
//           log-probabilities that only a loss of classes and its gradient read.
// Kept      random ops keep their streams; copies made by remat and chunks are there on purpose; collectives go or stay
//           on all ranks of their group together; inputs and outputs stay in their places.
// Ranks     programs are cleaned by themselves; a merged unshard is merged in all of them, or in none.
// Results   bitwise equal. No planned peak grows, except that a merged unshard lives from its first to its last use,
//           and that a folded loss keeps a number a row. A second run changes nothing.
// Limits    bodies of calls are cleaned too, but nothing moves into or out of one. What only a symbol's value at run
//           time makes equal stays.
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
