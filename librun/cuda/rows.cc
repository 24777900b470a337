// Softmax, norms and running sums: from calls to kernels.
#include <algorithm>
#include <array>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/parts.h"
#include "librun/cuda/kernels/runs.h"
#include "librun/cuda/kernels/scan.h"
#include "librun/cuda/reductions.h"
#include "librun/work/shapes.h"

namespace sg::cuda {
namespace {

int64_t row_count(const Tensor& t) { return t.rank == 0 || t.dim(-1) == 0 ? 0 : t.elements() / t.dim(-1); }

// --- softmax ---

Status softmax_with(KernelCall& call, bool log, bool safe) {
  const int64_t axis = call.integer("dim");
  const Tensor from = axis_last(call.tensor("self"), axis), to = axis_last(call.result(), axis);
  SoftmaxArgs args;
  args.to = row_view(to);
  args.from = row_view(from);
  args.rows = row_count(to);
  args.length = to.dim(-1);
  args.log = log;
  args.safe = safe;
  device_of(call).launch(rows_by_warps(args.length) ? "softmax_rows_by_warps" : "softmax_rows",
                         row_blocks(args.rows, args.length), args);
  return ok_status();
}

Status softmax(KernelCall& call) { return softmax_with(call, false, false); }
Status log_softmax(KernelCall& call) { return softmax_with(call, true, false); }
Status safe_softmax(KernelCall& call) { return softmax_with(call, false, true); }

Status softmax_backward_with(KernelCall& call, bool log) {
  const int64_t axis = call.integer("dim");
  const Tensor to = axis_last(call.result(), axis);
  SoftmaxArgs args;
  args.to = row_view(to);
  args.from = row_view(axis_last(call.tensor("output"), axis));
  args.gradient = row_view(axis_last(call.tensor("grad_output"), axis));
  args.rows = row_count(to);
  args.length = to.dim(-1);
  args.log = log;
  device_of(call).launch(rows_by_warps(args.length) ? "softmax_backward_rows_by_warps" : "softmax_backward_rows",
                         row_blocks(args.rows, args.length), args);
  return ok_status();
}

Status softmax_backward(KernelCall& call) { return softmax_backward_with(call, false); }
Status log_softmax_backward(KernelCall& call) { return softmax_backward_with(call, true); }

// --- norms ---

View optional_elements(const KernelCall& call, std::string_view name) {
  return call.op().param_index(name) >= 0 && call.has(name) ? element_view(call.tensor(name)) : View();
}

// A result with one number per row, in row-major order.
Tensor row_numbers(KernelCall& call, const Tensor& like) { return backend_of(call).scratch(like.dtype, like.sizes()); }

bool lies_in_runs(const View& v, Element type) {
  return is_line(v, type) && (v.axes == 0 || v.stride[0] == 1) && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
}

// The kernels of a norm: one warp per row if possible (kernels/short_norms.h), else one block.
struct NormKernel {
  const char *of_1024, *of_2048, *of_any;
};

void launch_norm(Device& device, const NormKernel& kernel, const NormArgs& args) {
  const Element type = args.from.element;
  bool by_warps = args.length % kRun == 0 && args.length <= 2048 &&
                  (type == Element::f32 || type == Element::bf16 || type == Element::f16);
  for (const View* v : {&args.from, &args.to, &args.gradient, &args.weight, &args.bias})
    by_warps = by_warps && lies_in_runs(*v, type);
  const int64_t blocks = by_warps ? (args.rows + kLanes / 32 - 1) / (kLanes / 32) : args.rows;
  device.launch(!by_warps             ? kernel.of_any
                : args.length <= 1024 ? kernel.of_1024
                                      : kernel.of_2048,
                std::min<int64_t>(blocks, 1 << 16), args);
}

Status norm_with(KernelCall& call, bool centered, size_t mean_at, size_t rstd_at) {
  NormArgs args;
  const Tensor& input = call.tensor("input");
  args.to = element_view(call.result(0));
  args.from = element_view(input);
  args.weight = optional_elements(call, "weight");
  args.bias = optional_elements(call, "bias");
  args.length = normalized_length(call);
  args.rows = args.length == 0 ? 0 : input.elements() / args.length;
  args.centered = centered;
  args.eps = call.has("eps")             ? call.number("eps")
             : input.dtype == DType::f64 ? 2.220446049250313e-16
                                         : 1.1920928955078125e-07;
  std::array<Tensor, 2> made;
  auto number = [&](size_t result, Tensor& tensor, View& view) {
    if (result >= call.result_count() || call.result(result).is_none()) return;
    tensor = row_numbers(call, call.result(result));
    view = element_view(tensor);
  };
  if (mean_at != 0) number(mean_at, made[0], args.mean);
  if (rstd_at != 0) number(rstd_at, made[1], args.rstd);
  launch_norm(device_of(call), {"norm_rows_1024", "norm_rows_2048", "norm_rows"}, args);
  if (!made[0].is_none()) backend_of(call).copy(call.result(mean_at), made[0]);
  if (!made[1].is_none()) backend_of(call).copy(call.result(rstd_at), made[1]);
  return ok_status();
}

Status layer_norm(KernelCall& call) { return norm_with(call, true, 1, 2); }
Status rms_norm(KernelCall& call) { return norm_with(call, false, 0, 1); }

Status norm_backward(KernelCall& call, bool centered) {
  NormArgs args;
  const Tensor& input = call.tensor("input");
  args.from = element_view(input);
  args.gradient = element_view(call.tensor("grad_out"));
  args.weight = optional_elements(call, "weight");
  args.rstd = element_view(in_rows(call, call.tensor("rstd")));
  if (centered) args.mean = element_view(in_rows(call, call.tensor("mean")));
  args.length = normalized_length(call);
  args.rows = args.length == 0 ? 0 : input.elements() / args.length;
  args.centered = centered;
  if (!call.result(0).is_none()) {
    args.to = element_view(call.result(0));
    launch_norm(device_of(call), {"norm_backward_rows_1024", "norm_backward_rows_2048", "norm_backward_rows"}, args);
  }
  auto wanted = [&](size_t i) {
    return i < call.result_count() && !call.result(i).is_none() ? element_view(call.result(i)) : View();
  };
  const View weight = wanted(1), bias = centered ? wanted(2) : View();
  if (args.length == 0 || (!weight.data && !bias.data)) return ok_status();
  NormPartArgs sums{args, parts_for(args.length, args.rows, tiles_of(args.length), 32)};
  sums.parts.at = backend_of(call).part_sums(sums.parts);
  device_of(call).launch("norm_column_parts", tiles_of(args.length) * sums.parts.count, sums);
  device_of(call).launch("finish_parts", blocks_for(args.length), PartsSumArgs{sums.parts, weight, bias, 1});
  return ok_status();
}

Status layer_norm_backward(KernelCall& call) { return norm_backward(call, true); }
Status rms_norm_backward(KernelCall& call) { return norm_backward(call, false); }

// --- along an axis ---

template <Scan kind>
Status scan(KernelCall& call) {
  const int64_t axis = call.integer("dim");
  const Tensor& out = call.result(0);
  Tensor self = call.tensor("self");
  if (kind < Scan::largest && self.dtype != out.dtype) {  // sums the numbers converted to the result's type
    self = backend_of(call).scratch(out.dtype, self.sizes());
    backend_of(call).copy(self, call.tensor("self"));
  }
  ScanArgs args;
  args.to = row_view(axis_last(out, axis));
  args.from = row_view(axis_last(self, axis));
  if (kind >= Scan::largest) args.index = row_view(axis_last(call.result(1), axis));
  args.rows = row_count(axis_last(out, axis));
  args.length = axis_last(out, axis).dim(-1);
  args.whole = !is_floating(out.dtype) && !is_complex(out.dtype);
  args.kind = kind;
  if (kind < Scan::largest && args.whole && args.length >= kLongScan)
    device_of(call).launch("scan_long_rows", std::min<int64_t>(args.rows, 1 << 16), args);
  else device_of(call).launch("scan_rows", blocks_for(args.rows), args);
  return ok_status();
}

constexpr KernelRow kRowRows[] = {
    {"aten._softmax.default", softmax},
    {"aten.softmax.int", softmax},
    {"aten._log_softmax.default", log_softmax},
    {"aten.log_softmax.int", log_softmax},
    {"aten._safe_softmax.default", safe_softmax},
    {"aten._softmax_backward_data.default", softmax_backward},
    {"aten._log_softmax_backward_data.default", log_softmax_backward},
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.layer_norm.default", layer_norm},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten.rms_norm.default", rms_norm},
    {"aten._fused_rms_norm.default", rms_norm},
    {"aten._fused_rms_norm_backward.default", rms_norm_backward},
    {"aten.cumsum.default", scan<Scan::sum>},
    {"aten.cumsum_.default", scan<Scan::sum>},
    {"aten.cumprod.default", scan<Scan::product>},
    {"aten.logcumsumexp.default", scan<Scan::log_sum>},
    {"aten.cummax.default", scan<Scan::largest>},
    {"aten.cummin.default", scan<Scan::smallest>},
};

}  // namespace

std::span<const KernelRow> row_kernels() { return kRowRows; }

}  // namespace sg::cuda
