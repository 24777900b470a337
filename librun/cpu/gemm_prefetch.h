// Prefetches a block of a matrix, a few cache lines at a time, during other computation, because packing would
// otherwise wait for memory.
//
// Rows that are a multiple of 2 KiB apart compete for a few cache sets. If there are more of them than those sets hold,
// they are copied to a separate buffer as they arrive.
#pragma once

#include <algorithm>
#include <cstring>

#include "librun/cpu/gemm_pack.h"

namespace sg::cpu {

class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(const MatrixView& b, int64_t k, int64_t columns) {
    if (b.column_step != 1 && b.row_step != 1) return;  // one element per line: not worthwhile
    bool rows = b.column_step == 1;
    int64_t size = dtype_bytes(b.dtype);
    runs_ = rows ? k : columns;
    run_bytes_ = (rows ? columns : k) * size;
    step_bytes_ = (rows ? b.row_step : b.column_step) * size;
    line_ = run_ = b.data;
    lines_ = runs_ * (run_bytes_ / kCacheLine + 1);
  }

  static bool rows_compete(const MatrixView& b, int64_t k) {
    return b.column_step == 1 && k > kRowsOfSets && b.row_step * dtype_bytes(b.dtype) % kSetBytes == 0;
  }
  // Rows of the block, copied to `copy`, copy_step bytes apart. REQUIRES: rows_compete(b, k)
  Prefetch(const MatrixView& b, int64_t k, int64_t columns, std::byte* copy, int64_t copy_step)
      : Prefetch(b, k, columns) {
    copy_ = copy, copy_step_ = copy_step, copied_from_ = run_, uncopied_ = runs_;
  }
  int64_t lines() const { return lines_; }

  void issue(int64_t lines) {
    if (copy_) [[unlikely]]
      return issue_and_copy(lines);
    for (; lines > 0 && runs_ > 0; --lines) next_line();
  }
  void finish() {  // completes the copy
    while (uncopied_ > 0) copy_row();
  }

 private:
  static constexpr int64_t kSetBytes = 2048;   // such a step leaves 64 sets of 2048, of 16 lines each,
  static constexpr int64_t kRowsOfSets = 384;  // number of rows of two lines that they hold
  static constexpr int64_t kBehind = 8;        // rows between prefetching and copying

  void next_line() {
    __builtin_prefetch(line_, 0, 2);
    line_ += kCacheLine;
    if (line_ < run_ + run_bytes_ + kCacheLine - 1) return;
    line_ = run_ += step_bytes_;
    --runs_;
  }
  [[gnu::noinline]] void issue_and_copy(int64_t lines) {
    for (; lines > 0 && runs_ > 0; --lines) next_line();
    while (uncopied_ - runs_ > kBehind) copy_row();
  }
  void copy_row() {
    std::memcpy(copy_, copied_from_, static_cast<size_t>(run_bytes_));
    copy_ += copy_step_, copied_from_ += step_bytes_;
    --uncopied_;
  }

  const std::byte* run_ = nullptr;
  const std::byte* line_ = nullptr;
  int64_t runs_ = 0, run_bytes_ = 0, step_bytes_ = 0, lines_ = 0;
  std::byte* copy_ = nullptr;
  const std::byte* copied_from_ = nullptr;
  int64_t copy_step_ = 0, uncopied_ = 0;
};

}  // namespace sg::cpu
