#include "librun/cpu/linear/rotate.h"

#include <cmath>

#include "librun/cpu/isa.h"

namespace sg::cpu::linear {
namespace {

constexpr int64_t kColumns = RowRotations::kColumns;

SG_CLONES void rotate_columns(double* at, int64_t step, const Rotation* rotations, int64_t count) {
  double carried[kColumns];
  std::copy_n(at, kColumns, carried);
  for (int64_t i = 0; i < count; ++i, at += step) {
    const double c = rotations[i].c, s = rotations[i].s;
    const double* next = at + step;
#pragma GCC ivdep
    for (int64_t j = 0; j < kColumns; ++j) {
      const double x = carried[j], y = next[j];
      at[j] = c * x + s * y;
      carried[j] = c * y - s * x;
    }
  }
  std::copy_n(carried, kColumns, at);
}

// Two sequences that begin at the same row, the second of which is no longer, in one pass: it follows a row behind.
SG_CLONES void rotate_columns_twice(double* at, int64_t step, const Rotation* rotations, int64_t count,
                                    const Rotation* after, int64_t count_after) {
  const double* next = at + step;
  double carried[kColumns], behind[kColumns];
  for (int64_t j = 0; j < kColumns; ++j) {
    behind[j] = rotations[0].c * at[j] + rotations[0].s * next[j];
    carried[j] = rotations[0].c * next[j] - rotations[0].s * at[j];
  }
  const bool are_equal = count_after == count;
  const int64_t both = are_equal ? count - 1 : count_after;
  for (int64_t i = 0; i < both; ++i, at += step) {
    const double c = rotations[i + 1].c, s = rotations[i + 1].s, d = after[i].c, t = after[i].s;
    const double* further = at + 2 * step;
#pragma GCC ivdep
    for (int64_t j = 0; j < kColumns; ++j) {
      const double x = carried[j], y = further[j], z = c * x + s * y, w = behind[j];
      carried[j] = c * y - s * x;
      at[j] = d * w + t * z;
      behind[j] = d * z - t * w;
    }
  }
  if (are_equal) {
    const double d = after[both].c, t = after[both].s;
    for (int64_t j = 0; j < kColumns; ++j) {
      at[j] = d * behind[j] + t * carried[j];
      at[step + j] = d * carried[j] - t * behind[j];
    }
    return;
  }
  std::copy_n(behind, kColumns, at);
  std::copy_n(carried, kColumns, at + step);
}

// The same, and the rest of the first sequence.
void rotate_twice(double* at, int64_t step, const Rotation* rotations, int64_t count, const Rotation* after,
                  int64_t count_after) {
  rotate_columns_twice(at, step, rotations, count, after, count_after);
  if (const int64_t done = count_after + 1; done < count)
    rotate_columns(at + done * step, step, rotations + done, count - done);
}

}  // namespace

Rotation* RowRotations::room() {
  if (held_ == kMost) apply();
  return rotations_ + used_;
}

void RowRotations::add(int64_t first, int direction, int64_t count) {
  if (!rows_.data || count == 0) return;
  sequences_[held_++] = {first, count, direction, rotations_ + used_};
  used_ += count;
}

void RowRotations::apply() {
  for (int64_t j = 0; held_ > 0 && j < rows_.columns; j += kColumns) {
    const int64_t columns = std::min(kColumns, rows_.columns - j);
    for (int64_t i = 0; i < n_; ++i) {
      double* to = columns_ + i * kColumns;
      std::fill(std::copy_n(rows_.row(i) + j, columns, to), to + kColumns, 0.0);
    }
    for (int i = 0; i < held_; ++i) {
      const Sequence &q = sequences_[i], *next = i + 1 < held_ ? &sequences_[i + 1] : nullptr;
      double* at = columns_ + q.first * kColumns;
      const int64_t step = q.direction * kColumns;
      if (next && next->first == q.first && next->direction == q.direction && next->count <= q.count) {
        rotate_twice(at, step, q.rotations, q.count, next->rotations, next->count);
        ++i;
      } else {
        rotate_columns(at, step, q.rotations, q.count);
      }
    }
    for (int64_t i = 0; i < n_; ++i) std::copy_n(columns_ + i * kColumns, columns, rows_.row(i) + j);
  }
  held_ = 0, used_ = 0;
}

Rotation rotation_of(double f, double g, double* r) {
  if (g == 0) return *r = f, Rotation{1, 0};
  *r = std::copysign(std::hypot(f, g), f);
  return {f / *r, g / *r};
}

}  // namespace sg::cpu::linear
