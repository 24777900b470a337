// The arguments of segment_reduce or its gradient, for both backends.
#pragma once

#include "librun/kernel.h"
#include "librun/work/math.h"
#include "librun/work/segment_reduce.h"

namespace sg::cpu {

struct SegmentCall {
  work::Segments segments;  // without bounds
  int64_t outer = 1;
  work::Join how;
  double start;
  bool has_start;  // was given
  Tensor said;     // lengths or offsets, which are never trusted
  bool by_length;
  bool whole;  // lengths must cover all rows; the gradient ignores rows after the last segment
};

inline work::Join join_of(std::string_view word) {
  return word == "sum"    ? work::Join::sum
         : word == "mean" ? work::Join::mean
         : word == "max"  ? work::Join::max
         : word == "min"  ? work::Join::min
                          : work::Join::prod;
}

inline SegmentCall segment_call(const KernelCall& call) {
  SegmentCall c;
  c.by_length = call.has("lengths");
  c.said = call.tensor(c.by_length ? "lengths" : "offsets");
  const Tensor& data = call.tensor("data");
  const int axis = c.said.rank - 1;
  for (int d = 0; d < axis; ++d) c.outer *= data.dim(d);
  for (int d = axis + 1; d < data.rank; ++d) c.segments.inner *= data.dim(d);
  c.segments.rows = data.dim(axis);
  c.segments.count = c.said.dim(axis) - (c.by_length ? 0 : 1);
  c.how = join_of(call.text("reduce"));
  const bool is_gradient = call.op().param_index("unsafe") < 0;
  c.has_start = call.has("initial");
  c.start = c.has_start                 ? call.number("initial")
            : c.how == work::Join::prod ? 1
            : c.how == work::Join::max  ? -math::infinity()
            : c.how == work::Join::min  ? math::infinity()
                                        : 0;
  c.whole = c.by_length && !is_gradient && !call.flag("unsafe");
  return c;
}

}  // namespace sg::cpu
