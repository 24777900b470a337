#include "librun/cpu/linear/rotate.h"

#include <cmath>

#include "librun/cpu/isa.h"

namespace sg::cpu::linear {
namespace {

constexpr int64_t kColumns = 32;  // elements of a row that are kept in registers

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

void rotate_few(double* at, int64_t step, int64_t columns, const Rotation* rotations, int64_t count) {
  for (int64_t i = 0; i < count; ++i, at += step)
    for (int64_t j = 0; j < columns; ++j) {
      const double x = at[j], y = at[step + j];
      at[j] = rotations[i].c * x + rotations[i].s * y;
      at[step + j] = rotations[i].c * y - rotations[i].s * x;
    }
}

}  // namespace

void rotate_rows(const Block<double>& rows, int64_t first, int direction, const Rotation* rotations, int64_t count) {
  const int64_t step = direction * rows.step;
  int64_t j = 0;
  for (; j + kColumns <= rows.columns; j += kColumns) rotate_columns(rows.row(first) + j, step, rotations, count);
  if (j < rows.columns) rotate_few(rows.row(first) + j, step, rows.columns - j, rotations, count);
}

Rotation rotation_of(double f, double g, double* r) {
  if (g == 0) return *r = f, Rotation{1, 0};
  *r = std::copysign(std::hypot(f, g), f);
  return {f / *r, g / *r};
}

}  // namespace sg::cpu::linear
