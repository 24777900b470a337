// Steps of Fourier transforms of lines, element by element, in double. Complex numbers are pairs; lines are contiguous,
// one after another. any_device/fourier_by_work.h combines the steps.
#pragma once

#include "librun/work/divide.h"
#include "librun/work/work.h"

namespace sg::work {

struct Pair {
  double re, im;
};
SG_INLINE Pair times(Pair a, Pair b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

// One factor of a transform of `length` (Stockham's order: input and output are in natural order, without a sorting
// pass). Before it, transforms of `span` elements are complete; after it, transforms of span * factor are.
struct FourierStage {
  static constexpr const char* kName = "work_fourier_stage";
  const Pair* from;
  Pair* to;
  const Pair* roots;  // exp(-2 pi i k / length), or the conjugates for the inverse
  int64_t length, factor, span;

  SG_INLINE void operator()(int64_t i) const {
    int64_t line = i;
    int64_t rest = take_remainder(&line, length);
    const int64_t at = take_remainder(&rest, span), k = take_remainder(&rest, factor), part = rest;
    const int64_t parts = length / factor / span, turn = k * (length / factor);
    const Pair* x = from + line * length + at + span * part;
    Pair sum = *x;
    for (int64_t j = 1, root = turn; j < factor; ++j) {
      const Pair add = times(x[span * parts * j], roots[root]);
      sum = {sum.re + add.re, sum.im + add.im};
      root += turn;
      if (root >= length) root -= length;
    }
    to[i] = times(sum, roots[part * k * span]);
  }
};

// Changes the length of lines: element k is multiplied by table[k]; elements from `kept` on are 0.
struct TurnLines {
  static constexpr const char* kName = "work_turn_lines";
  const Pair* from;
  Pair* to;
  const Pair* table;
  int64_t from_length, to_length, kept;

  SG_INLINE void operator()(int64_t i) const {
    int64_t line = i;
    const int64_t k = take_remainder(&line, to_length);
    to[i] = k < kept ? times(from[line * from_length + k], table[k]) : Pair{0, 0};
  }
};

// Completes lines of `length` from their first `half` elements: the others are conjugates of these. The imaginary part
// of an element that is its own conjugate is ignored.
struct MirrorLines {
  static constexpr const char* kName = "work_mirror_lines";
  const Pair* from;
  Pair* to;
  int64_t half, length;

  SG_INLINE void operator()(int64_t i) const {
    int64_t line = i;
    const int64_t k = take_remainder(&line, length);
    const Pair x = from[line * half + (k < half ? k : length - k)];
    to[i] = {x.re, k == 0 || 2 * k == length ? 0 : k < half ? x.im : -x.im};
  }
};

// x = by * x, element by element.
struct ScaleNumbers {
  static constexpr const char* kName = "work_scale_numbers";
  Pair* x;
  double by;
  SG_INLINE void operator()(int64_t i) const { x[i] = {x[i].re * by, x[i].im * by}; }
};

}  // namespace sg::work
