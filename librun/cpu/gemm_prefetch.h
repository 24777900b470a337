// Brings a block of a matrix nearer, a few lines at a time, while something else is computed: what packing waits for
// otherwise is memory.
#pragma once

#include "librun/cpu/gemm_pack.h"

namespace sg::cpu {

class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(const MatrixView& b, int64_t k, int64_t columns) {
    if (b.column_step != 1 && b.row_step != 1) return;  // one element a line: not worth it
    bool rows = b.column_step == 1;
    int64_t size = dtype_bytes(b.dtype);
    runs_ = rows ? k : columns;
    run_bytes_ = (rows ? columns : k) * size;
    step_bytes_ = (rows ? b.row_step : b.column_step) * size;
    line_ = run_ = b.data;
    lines_ = runs_ * (run_bytes_ / kLine + 1);
  }
  int64_t lines() const { return lines_; }

  void issue(int64_t lines) {
    for (; lines > 0 && runs_ > 0; --lines) {
      __builtin_prefetch(line_, 0, 2);
      line_ += kLine;
      if (line_ < run_ + run_bytes_ + kLine - 1) continue;
      line_ = run_ += step_bytes_;
      --runs_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const std::byte* run_ = nullptr;
  const std::byte* line_ = nullptr;
  int64_t runs_ = 0, run_bytes_ = 0, step_bytes_ = 0, lines_ = 0;
};

}  // namespace sg::cpu
