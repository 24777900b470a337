// Fourier transforms of lines by element, in double: complex numbers are pairs, one behind the other, and lines lie one
// behind the other. cpu/fourier_by_work.h puts the pieces together.
#pragma once

#include "librun/work/divide.h"
#include "librun/work/work.h"

namespace sg::work {

struct Pair {
  double re, im;
};
SG_INLINE Pair times(Pair a, Pair b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

// One factor of a transform of `length` (Stockham's order: what goes in and what comes out at the end lies in its own
// order, without a pass that sorts). Before it, `span` neighbours come from transforms that are done; after it,
// span * factor of them do.
struct FourierStage {
  static constexpr const char* kName = "work_fourier_stage";
  const Pair* from;
  Pair* to;
  const Pair* roots;  // exp(-2 pi i k / length), or of the way back
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

// Lines of another length: number k is table[k] times what it was, and 0 from `kept` on.
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

// Whole lines of `length` from their halves, of `half` numbers: what is left is the other's conjugate. What is imaginary
// where a number is its own does not count.
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

// x = by * x, number by number.
struct ScaleNumbers {
  static constexpr const char* kName = "work_scale_numbers";
  Pair* x;
  double by;
  SG_INLINE void operator()(int64_t i) const { x[i] = {x[i].re * by, x[i].im * by}; }
};

}  // namespace sg::work
