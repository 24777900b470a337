// Reductions of runs of rows with data-dependent lengths. The host does not wait: bounds are computed, and checked
// against the data, on the device.
#include <array>

#include "librun/cpu/inner_call.h"
#include "librun/cpu/segment_call.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/work/run.h"

namespace sg::cuda {
namespace {

using cpu::SegmentCall;

// Sets the bounds: the given offsets, or the running sums of the lengths.
Status find_bounds(KernelCall& call, SegmentCall* c) {
  const int64_t count = c->segments.count;
  const Tensor bounds = backend_of(call).scratch(DType::i64, std::array{c->outer, count + 1});
  const Tensor said = in_rows_as(call, c->said, DType::i64);
  if (c->by_length) {
    Tensor first = drop_axis(bounds, 1), ends = bounds;
    ends.shape[1] = count;
    ends.data += dtype_bytes(DType::i64);
    backend_of(call).fill(first, Scalar::integer(0));
    SG_TRY(cpu::call_op(call, "aten.cumsum.default",
                        {{"self", cpu::param_of(make_tensor(said.data, DType::i64, std::array{c->outer, count}))},
                         {"dim", cpu::param_of(Scalar::integer(1))}},
                        {ends}));
  } else {
    backend_of(call).copy(bounds, make_tensor(said.data, DType::i64, bounds.sizes()));
  }
  c->segments.bounds = bounds.as<int64_t>();
  for_each(call, c->outer * count, 1,
           work::CheckSegments{c->segments.rows, count, bounds.as<int64_t>(), c->whole, report_of(call)});
  return ok_status();
}

Status segment_reduce(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();
  SegmentCall c = cpu::segment_call(call);
  SG_TRY(find_bounds(call, &c));
  const Tensor data = in_rows_as(call, call.tensor("data"), DType::f64),
               out = backend_of(call).scratch(DType::f64, call.result().sizes());
  for_each(call, out.elements(), 1,
           work::JoinSegment{c.segments, c.how, c.start, c.has_start, data.as<double>(), out.as<double>()});
  backend_of(call).copy(call.result(), out);
  return ok_status();
}

Status segment_reduce_backward(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();
  SegmentCall c = cpu::segment_call(call);
  SG_TRY(find_bounds(call, &c));
  const Tensor data = in_rows_as(call, call.tensor("data"), DType::f64),
               output = in_rows_as(call, call.tensor("output"), DType::f64),
               grad = in_rows_as(call, call.tensor("grad"), DType::f64),
               out = backend_of(call).scratch(DType::f64, data.sizes());
  backend_of(call).fill(out, Scalar::integer(0));  // for rows in no segment
  for_each(call, output.elements(), 1,
           work::SegmentSlope{c.segments, c.how, c.start, data.as<double>(), output.as<double>(), grad.as<double>(),
                              out.as<double>()});
  backend_of(call).copy(call.result(), out);
  return ok_status();
}

constexpr KernelRow kSegmentRows[] = {
    {"aten.segment_reduce.default", segment_reduce},
    {"aten._segment_reduce_backward.default", segment_reduce_backward},
};

}  // namespace

std::span<const KernelRow> segment_kernels() { return kSegmentRows; }

}  // namespace sg::cuda
