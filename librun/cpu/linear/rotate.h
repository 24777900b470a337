// Sequences of plane rotations on the rows of a matrix, which apply to eigenvectors what is done to the eigenvalues.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

struct Rotation {
  double c, s;
};

// Rotations on rows x and y: c x + s y and c y - s x. Sequences of them wait and are applied together, to a copy of a
// few columns at a time, which stays in the cache.
class RowRotations {
 public:
  static constexpr int kMost = 64;         // sequences that wait
  static constexpr int64_t kColumns = 32;  // elements of a row that are kept in registers

  // Elements of `space`.
  static constexpr int64_t space(int64_t n) { return (2 * kMost + kColumns) * n; }

  // Of the first n rows, which a sequence rotates once at most.
  RowRotations(const Block<double>& rows, int64_t n, double* space)
      : rows_(rows), n_(n), columns_(space), rotations_(reinterpret_cast<Rotation*>(space + kColumns * n)) {}
  // Complex rows are rotated as pairs of numbers.
  RowRotations(const Block<Complex>& b, int64_t n, double* space)
      : RowRotations(Block<double>{reinterpret_cast<double*>(b.data), b.rows, 2 * b.columns, 2 * b.step}, n, space) {}

  // Where to write the next sequence.
  Rotation* room();
  // Adds it: x is `first` and y is first + direction, which is the next rotation's x. REQUIRES: direction 1 or -1
  void add(int64_t first, int direction, int64_t count);
  // Applies all that wait.
  void apply();

 private:
  struct Sequence {
    int64_t first, count;
    int direction;
    const Rotation* rotations;
  };
  Block<double> rows_;
  int64_t n_;
  double* columns_;
  Rotation* rotations_;
  int64_t used_ = 0;
  int held_ = 0;
  Sequence sequences_[kMost];
};

// The rotation that maps (f, g) to (r, 0): c f + s g = r.
Rotation rotation_of(double f, double g, double* r);

}  // namespace sg::cpu::linear
