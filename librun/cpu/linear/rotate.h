// Sequences of plane rotations on the rows of a matrix, which apply to eigenvectors what is done to the eigenvalues.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

struct Rotation {
  double c, s;
};

// For each rotation in order: rows x = first, y = first + direction become c x + s y and c y - s x, and the latter is
// the next x. REQUIRES: direction 1 or -1
void rotate_rows(const Block<double>& rows, int64_t first, int direction, const Rotation* rotations, int64_t count);

// The same for complex rows.
inline void rotate_rows(const Block<Complex>& b, int64_t first, int direction, const Rotation* rotations,
                        int64_t count) {
  rotate_rows(Block<double>{reinterpret_cast<double*>(b.data), b.rows, 2 * b.columns, 2 * b.step}, first, direction,
              rotations, count);
}

// The rotation that maps (f, g) to (r, 0): c f + s g = r.
Rotation rotation_of(double f, double g, double* r);

}  // namespace sg::cpu::linear
