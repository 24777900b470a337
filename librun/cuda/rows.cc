// Reductions, softmax, norms and running sums: from calls to kernels.
#include <algorithm>
#include <array>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/parts.h"
#include "librun/cuda/kernels/reduce.h"
#include "librun/cuda/kernels/scan.h"
#include "librun/work/shapes.h"

namespace sg::cuda {
namespace {

int64_t row_count(const Tensor& t) { return t.rank == 0 || t.dim(-1) == 0 ? 0 : t.elements() / t.dim(-1); }

// --- reductions ---

constexpr int64_t kBlocksWanted = 1024;  // that a device of today has some work for

// Memory for the parts of long sums: as many as give `blocks` blocks, of at least `least` numbers each.
Parts parts_of(KernelCall& call, int64_t results, int64_t length, int64_t blocks_a_part, int64_t least) {
  const int64_t most = std::max<int64_t>(1, length / least);
  const int64_t count = std::clamp<int64_t>(kBlocksWanted / std::max<int64_t>(1, blocks_a_part), 1, most);
  Parts parts;
  parts.results = results;
  parts.length = length;
  parts.run = std::max<int64_t>(1, (length + count - 1) / count);
  parts.count = std::max<int64_t>(1, (length + parts.run - 1) / parts.run);
  parts.at = reinterpret_cast<TwoSums*>(
      backend_of(call).scratch(DType::f64, std::array<int64_t, 3>{parts.count, results, 2}).data);
  return parts;
}

int64_t tiles_of(int64_t columns) { return (columns + kTileColumns - 1) / kTileColumns; }

void finish(KernelCall& call, const Parts& parts, const View& first, const View& second, double divisor) {
  device_of(call).launch("finish_parts", blocks_for(parts.results), PartsSumArgs{parts, first, second, divisor});
}

// Sums and means of floats for which a block a result would be too few, or would read with strides. False: others.
bool reduced_in_parts(KernelCall& call, const ReduceArgs& args) {
  constexpr int64_t kColumnRun = 128, kRowRun = 4096;  // numbers of a result that are worth a block
  const bool is_sum = args.kind == Reduce::sum || args.kind == Reduce::mean;
  if (!is_sum || !is_floating(call.tensor("self").dtype) || args.to.count == 0 || args.count < kColumnRun) return false;
  const View& from = args.from;
  const bool in_columns =
      args.kept == 1 && from.axes == 2 && from.stride[0] < from.stride[1] && args.to.count >= kTileColumns / 4;
  if (!in_columns && (args.count < 2 * kRowRun || args.to.count > kBlocksWanted / 8)) return false;
  PartSumArgs sums{from, args.kept, {}};
  const int64_t blocks = in_columns ? tiles_of(args.to.count) : args.to.count;
  sums.parts = parts_of(call, args.to.count, args.count, blocks, in_columns ? kColumnRun : kRowRun);
  device_of(call).launch(in_columns ? "column_parts" : "row_parts", blocks * sums.parts.count, sums);
  finish(call, sums.parts, args.to, {}, args.kind == Reduce::mean ? static_cast<double>(args.count) : 1);
  return true;
}

Status reduce(KernelCall& call, Reduce kind, std::vector<int> axes, double parameter = 0, std::optional<Tensor> to = {},
              Tensor mean = {}, Tensor index = {}) {
  const Tensor& self = call.tensor("self");
  std::array<bool, kMaxRank> reduced{};
  if (axes.empty()) reduced.fill(true);
  for (int axis : axes) reduced[static_cast<size_t>(axis)] = true;
  Tensor from = self, out = to ? *to : call.result();
  from.rank = 0;
  ReduceArgs args;
  auto push = [&](int axis) {
    const auto at = static_cast<size_t>(from.rank++);
    from.shape[at] = self.dim(axis);
    from.stride[at] = self.step(axis);
  };
  for (int axis = 0; axis < self.rank; ++axis)
    if (!reduced[static_cast<size_t>(axis)]) push(axis);
  args.kept = from.rank;
  for (int axis = 0; axis < self.rank; ++axis)
    if (reduced[static_cast<size_t>(axis)]) push(axis), args.count *= self.dim(axis);
  auto kept_view = [&](const Tensor& t) {  // reduced axes that are kept as 1 are left out
    Tensor view = t;
    if (t.rank == self.rank && self.rank > 0)
      for (int axis = self.rank - 1; axis >= 0; --axis)
        if (reduced[static_cast<size_t>(axis)]) view = drop_axis(view, axis);
    return element_view(view);
  };
  if ((kind == Reduce::largest || kind == Reduce::smallest) && args.count == 0 && self.rank > 0)
    return call.fail("there is nothing to choose from");
  args.from = Device::view(from);
  merge_axes(&args.from, args.kept, from.rank);
  args.kept = merge_axes(&args.from, 0, args.kept);
  args.kind = kind;
  args.parameter = parameter;
  if (!out.is_none()) args.to = kept_view(out);
  if (!mean.is_none()) args.mean = kept_view(mean);
  if (!index.is_none()) args.index = kept_view(index);
  if (out.is_none()) args.to = args.index, args.to.data = nullptr;  // the rows are those of the positions
  args.whole = !out.is_none() && !is_floating(out.dtype) && !is_complex(out.dtype);
  if (reduced_in_parts(call, args)) return ok_status();
  device_of(call).launch("reduce_rows", std::min<int64_t>(args.to.count, 1 << 16), args);
  return ok_status();
}

std::vector<int> axes_of(KernelCall& call) {
  const int rank = call.tensor("self").rank;
  if (rank == 0) return {};
  for (const char* name : {"dim", "dims"})
    if (call.op().param_index(name) >= 0 && call.has(name)) return call.axes(name, rank);
  return {};
}

template <Reduce kind>
Status plain(KernelCall& call) {
  if (kind == Reduce::logsumexp && is_complex(call.tensor("self").dtype)) return run_by_host(call);
  if (kind == Reduce::nan_sum && is_complex(call.tensor("self").dtype)) return run_by_host(call);
  return reduce(call, kind, axes_of(call));
}

double correction_of(const KernelCall& call) {
  if (call.op().param_index("correction") >= 0) return call.has("correction") ? call.number("correction") : 1;
  return call.flag("unbiased") ? 1 : 0;
}

template <Reduce kind>
Status moments(KernelCall& call) {
  return reduce(call, kind, axes_of(call), correction_of(call), call.result(0),
                call.result_count() > 1 ? call.result(1) : Tensor());
}

Status vector_norm(KernelCall& call) {
  const char* name = call.op().param_index("ord") >= 0 ? "ord" : "p";  // "aten.norm" takes the latter
  const double p = call.has(name) ? call.number(name) : 2;
  if (!is_floating(call.tensor("self").dtype) && !is_complex(call.tensor("self").dtype)) return run_by_host(call);
  if (call.op().param_index("dtype") >= 0 && call.has("dtype")) {  // of the numbers as that type has them
    Tensor& self = call.params()[static_cast<size_t>(call.op().param_index("self"))].tensor;
    const Tensor given = self;
    self = backend_of(call).scratch(call.stored("dtype", given.dtype), given.sizes());
    backend_of(call).copy(self, given);
    Status status = reduce(call, Reduce::norm, axes_of(call), p);
    call.params()[static_cast<size_t>(call.op().param_index("self"))].tensor = given;
    return status;
  }
  return reduce(call, Reduce::norm, axes_of(call), p);
}

template <Reduce kind>
Status along(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  return reduce(call, kind,
                self.rank == 0 ? std::vector<int>() : std::vector<int>{wrap_axis(call.integer("dim"), self.rank)}, 0,
                call.result(0), {}, call.result(1));
}

template <Reduce kind>
Status position(KernelCall& call) {
  return reduce(call, kind, axes_of(call), 0, Tensor(), {}, call.result(0));
}

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
  device_of(call).launch("softmax_rows", std::min<int64_t>(args.rows, 1 << 16), args);
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
  device_of(call).launch("softmax_backward_rows", std::min<int64_t>(args.rows, 1 << 16), args);
  return ok_status();
}

Status softmax_backward(KernelCall& call) { return softmax_backward_with(call, false); }
Status log_softmax_backward(KernelCall& call) { return softmax_backward_with(call, true); }

// --- norms ---

View optional_elements(const KernelCall& call, std::string_view name) {
  return call.op().param_index(name) >= 0 && call.has(name) ? element_view(call.tensor(name)) : View();
}

// A result with a number for each row, in row-major order.
Tensor row_numbers(KernelCall& call, const Tensor& like) { return backend_of(call).scratch(like.dtype, like.sizes()); }

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
  device_of(call).launch("norm_rows", std::min<int64_t>(args.rows, 1 << 16), args);
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
    device_of(call).launch("norm_backward_rows", std::min<int64_t>(args.rows, 1 << 16), args);
  }
  auto wanted = [&](size_t i) {
    return i < call.result_count() && !call.result(i).is_none() ? element_view(call.result(i)) : View();
  };
  const View weight = wanted(1), bias = centered ? wanted(2) : View();
  if (args.length == 0 || (!weight.data && !bias.data)) return ok_status();
  const NormPartArgs sums{args, parts_of(call, args.length, args.rows, tiles_of(args.length), 32)};
  device_of(call).launch("norm_column_parts", tiles_of(args.length) * sums.parts.count, sums);
  finish(call, sums.parts, weight, bias, 1);
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
  if (kind < Scan::largest && self.dtype != out.dtype) {  // sums of the numbers as the result's type has them
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
  device_of(call).launch("scan_rows", blocks_for(args.rows), args);
  return ok_status();
}

constexpr KernelRow kRowRows[] = {
    {"aten.sum.default", plain<Reduce::sum>},
    {"aten.sum.dim_IntList", plain<Reduce::sum>},
    {"aten.mean.default", plain<Reduce::mean>},
    {"aten.mean.dim", plain<Reduce::mean>},
    {"aten.prod.default", plain<Reduce::product>},
    {"aten.prod.dim_int", plain<Reduce::product>},
    {"aten.count_nonzero.default", plain<Reduce::count>},
    {"aten.any.default", plain<Reduce::any>},
    {"aten.any.dim", plain<Reduce::any>},
    {"aten.any.dims", plain<Reduce::any>},
    {"aten.all.default", plain<Reduce::all>},
    {"aten.all.dim", plain<Reduce::all>},
    {"aten.all.dims", plain<Reduce::all>},
    {"aten.amax.default", plain<Reduce::largest>},
    {"aten.amin.default", plain<Reduce::smallest>},
    {"aten.max.default", plain<Reduce::largest>},
    {"aten.min.default", plain<Reduce::smallest>},
    {"aten.max.dim", along<Reduce::largest>},
    {"aten.min.dim", along<Reduce::smallest>},
    {"aten.argmax.default", position<Reduce::largest>},
    {"aten.argmin.default", position<Reduce::smallest>},
    {"aten.var.default", moments<Reduce::variance>},
    {"aten.var.dim", moments<Reduce::variance>},
    {"aten.var.correction", moments<Reduce::variance>},
    {"aten.var_mean.correction", moments<Reduce::variance>},
    {"aten.std.default", moments<Reduce::deviation>},
    {"aten.std.dim", moments<Reduce::deviation>},
    {"aten.std.correction", moments<Reduce::deviation>},
    {"aten.linalg_vector_norm.default", vector_norm},
    {"aten.logsumexp.default", plain<Reduce::logsumexp>},
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
    {"aten.nansum.default", plain<Reduce::nan_sum>},
    {"aten._is_all_true.default", plain<Reduce::all>},
    {"aten._is_any_true.default", plain<Reduce::any>},
    {"aten.norm.Scalar", vector_norm},
    {"aten.norm.ScalarOpt_dim", vector_norm},
};

}  // namespace

std::span<const KernelRow> row_kernels() { return kRowRows; }

}  // namespace sg::cuda
