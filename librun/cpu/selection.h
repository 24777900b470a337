// Selections: the elements of a tensor that indices pick, as offsets; copying or adding between two selections of one
// shape.
//
// A selection has outer x picked x inner elements: axes before the indexed ones, the picked positions, axes after.
#pragma once

#include <vector>

#include "librun/kernel.h"

namespace sg::cpu {

struct OffsetTable {
  const int64_t* at = nullptr;
  int64_t count = 0;
};

struct Selection {
  Tensor tensor;  // the tensor that offsets refer to
  OffsetTable outer, picked, inner;
  bool inner_run = false;  // inner.at[i] == i
};

// All of `t`: the picked positions are those of its `indexed` axes from `first` on, in order.
Selection whole_selection(KernelCall& call, const Tensor& t, int first, int indexed);

// `t` along one axis at `index` (contiguous i64); negative indices count from the end if `wraps`, else are errors.
Result<Selection> axis_selection(KernelCall& call, const Tensor& t, int64_t axis, const Tensor& index, bool wraps);

// to = from, elements of equal size. If a position is picked twice, the last pick wins.
void copy_selection(KernelCall& call, const Selection& to, const Selection& from);
// The same if no position is certainly picked twice.
void copy_selection_once(KernelCall& call, const Selection& to, const Selection& from);

// to += from * scale, in the order of picks; half precision is summed in float and rounded once. REQUIRES: equal
// dtypes.
void add_selection(KernelCall& call, const Selection& to, const Selection& from, Scalar scale);

// Positions 0..n-1 grouped by key: group g holds order[begin[g]] .. order[begin[g + 1]], in increasing order.
struct Groups {
  const int64_t* order;
  const int64_t* begin;
  int64_t count;
};
Groups group_by_key(KernelCall& call, const int64_t* keys, int64_t n);

}  // namespace sg::cpu
