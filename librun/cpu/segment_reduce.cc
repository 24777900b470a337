// Reductions of runs of rows with data-dependent lengths, and their gradients. In double, one segment per task.
#include <vector>

#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/cpu/segment_call.h"
#include "librun/work/segment_reduce.h"

namespace sg::cpu {
namespace {

// Reads the lengths or offsets, which are never trusted.
Result<std::vector<int64_t>> read_bounds(KernelCall& call, const SegmentCall& c) {
  const Tensor said = contiguous_as(call, c.said, DType::i64);
  const int64_t rows = c.segments.rows, count = c.segments.count;
  std::vector<int64_t> bounds;
  for (int64_t o = 0; o < c.outer; ++o) {
    const int64_t* from = said.as<int64_t>() + o * said.dim(-1);
    int64_t end = c.by_length ? 0 : from[0];
    bounds.push_back(end);
    for (int64_t s = 0; s < count; ++s) {
      const int64_t length = c.by_length ? from[s] : from[s + 1] - from[s];
      if (end < 0 || length < 0 || length > rows - end)
        return call.fail("segment " + std::to_string(s) + " does not lie within the " + std::to_string(rows) +
                         " rows of the data");
      bounds.push_back(end += length);
    }
    if (c.whole && end != rows)
      return call.fail("the lengths of segments do not sum to the " + std::to_string(rows) + " rows of the data");
  }
  return bounds;
}

Status segment_reduce(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();
  SegmentCall c = segment_call(call);
  const Tensor data = contiguous_as(call, call.tensor("data"), DType::f64);
  SG_ASSIGN(const std::vector<int64_t> bounds, read_bounds(call, c));
  c.segments.bounds = bounds.data();
  const Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  const work::JoinSegment work{c.segments, c.how, c.start, c.has_start, data.as<double>(), out.as<double>()};
  for_rows(call, c.outer * c.segments.count, c.segments.inner,
           [&](int64_t unit, int) { work.columns(unit, 0, c.segments.inner); });
  copy(call, call.result(), out);
  return ok_status();
}

Status segment_reduce_backward(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();
  SegmentCall c = segment_call(call);
  const Tensor data = contiguous_as(call, call.tensor("data"), DType::f64),
               output = contiguous_as(call, call.tensor("output"), DType::f64),
               grad = contiguous_as(call, call.tensor("grad"), DType::f64);
  SG_ASSIGN(const std::vector<int64_t> bounds, read_bounds(call, c));
  c.segments.bounds = bounds.data();
  const Tensor out = call.scratch().tensor(DType::f64, data.sizes());
  std::fill_n(out.as<double>(), out.elements(), 0.0);  // for rows in no segment
  const work::SegmentSlope work{c.segments,        c.how,           c.start, data.as<double>(), output.as<double>(),
                                grad.as<double>(), out.as<double>()};
  const int64_t inner = c.segments.inner;
  for_rows(call, c.outer * c.segments.count, inner, [&](int64_t unit, int) {
    for (int64_t i = 0; i < inner; ++i) work(unit * inner + i);
  });
  copy(call, call.result(), out);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.segment_reduce.default", segment_reduce},
    {"aten._segment_reduce_backward.default", segment_reduce_backward},
};

}  // namespace

std::span<const KernelRow> segment_kernels() { return kRows; }

}  // namespace sg::cpu
