// Copies words between two layouts: cpu/move.h plans the copy.
#pragma once

#include "librun/work/divide.h"
#include "librun/work/windows.h"
#include "librun/work/work.h"

namespace sg::work {

inline constexpr int kMostLineAxes = 12;  // kMaxRank of tensor.h

// The layout of a tensor's words, indexed in an order common to both tensors.
struct WordLine {
  int64_t axes = 0;
  int64_t shape[kMostLineAxes] = {}, stride[kMostLineAxes] = {};

  SG_INLINE int64_t place(int64_t i) const {
    if (axes == 0) return 0;
    int64_t out = 0;
    for (int64_t axis = axes - 1; axis > 0; --axis) out += take_remainder(&i, shape[axis]) * stride[axis];
    return out + i * stride[0];
  }
};

template <class Word>
struct MoveWords {
  static constexpr const char* kName = sizeof(Word) == 1   ? "work_move_1"
                                       : sizeof(Word) == 2 ? "work_move_2"
                                       : sizeof(Word) == 4 ? "work_move_4"
                                       : sizeof(Word) == 8 ? "work_move_8"
                                                           : "work_move_16";
  Word* to;
  const Word* from;
  WordLine to_line, from_line;
  SG_INLINE void operator()(int64_t i) const { to[to_line.place(i)] = from[from_line.place(i)]; }
};

}  // namespace sg::work
