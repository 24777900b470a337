#include "librun/cuda/reductions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/parts.h"

namespace sg::cuda {
namespace {

constexpr int64_t kBlocksWanted = 1024;  // enough to keep a current device busy
constexpr int64_t kMostRowBlocks = 1 << 16;

// --- from calls to reductions ---

std::vector<int> axes_of(const KernelCall& call) {
  const int rank = call.tensor("self").rank;
  if (rank == 0) return {};
  for (const char* name : {"dim", "dims"})
    if (call.op().param_index(name) >= 0 && call.has(name)) return call.axes(name, rank);
  return {};
}

using Read = std::optional<Reduction> (*)(const KernelCall& call);

template <Reduce kind>
std::optional<Reduction> plain(const KernelCall& call) {
  const bool real_only = kind == Reduce::logsumexp || kind == Reduce::nan_sum;
  if (real_only && is_complex(call.tensor("self").dtype)) return std::nullopt;
  return Reduction{kind, axes_of(call), 0, DType::none, call.results[0], {}, {}};
}

double correction_of(const KernelCall& call) {
  if (call.op().param_index("correction") >= 0) return call.has("correction") ? call.number("correction") : 1;
  return call.flag("unbiased") ? 1 : 0;
}

template <Reduce kind>
std::optional<Reduction> moments(const KernelCall& call) {
  const Tensor mean = call.result_count() > 1 ? call.results[1] : Tensor();
  return Reduction{kind, axes_of(call), correction_of(call), DType::none, call.results[0], mean, {}};
}

std::optional<Reduction> vector_norm(const KernelCall& call) {
  const char* name = call.op().param_index("ord") >= 0 ? "ord" : "p";  // "aten.norm" has the latter
  const DType from = call.tensor("self").dtype;
  if (!is_floating(from) && !is_complex(from)) return std::nullopt;
  const bool converts = call.op().param_index("dtype") >= 0 && call.has("dtype");
  const double p = call.has(name) ? call.number(name) : 2;
  return Reduction{
      Reduce::norm, axes_of(call), p, converts ? call.stored("dtype", from) : DType::none, call.results[0], {}, {}};
}

template <Reduce kind>
std::optional<Reduction> along(const KernelCall& call) {
  const int rank = call.tensor("self").rank;
  std::vector<int> axes;
  if (rank > 0) axes.push_back(wrap_axis(call.integer("dim"), rank));
  return Reduction{kind, std::move(axes), 0, DType::none, call.results[0], {}, call.results[1]};
}

template <Reduce kind>
std::optional<Reduction> position(const KernelCall& call) {
  return Reduction{kind, axes_of(call), 0, DType::none, {}, {}, call.results[0]};
}

struct ReductionRow {
  std::string_view op;
  Read read;
};

constexpr ReductionRow kReductions[] = {
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
    {"aten._is_all_true.default", plain<Reduce::all>},
    {"aten._is_any_true.default", plain<Reduce::any>},
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
    {"aten.norm.Scalar", vector_norm},
    {"aten.norm.ScalarOpt_dim", vector_norm},
    {"aten.logsumexp.default", plain<Reduce::logsumexp>},
    {"aten.nansum.default", plain<Reduce::nan_sum>},
};

// --- ways ---

constexpr int64_t kColumnRun = 128, kRowRun = 4096;  // elements of a result that justify a block

// Sums, means and norms of floats go by parts if one block per result would be too few, or would read with strides.
ReduceWay way_of(const ReduceArgs& args, DType from) {
  const ReduceHow& how = args.how;
  const int64_t results = args.to.to.count;
  const bool is_norm = how.kind == Reduce::norm && std::isfinite(how.parameter);
  const bool is_sum = how.kind == Reduce::sum || how.kind == Reduce::mean || is_norm;
  if (!is_sum || !is_floating(from) || results == 0 || how.count < kColumnRun) return ReduceWay::rows;
  const View& view = args.from;
  const bool in_columns =
      args.kept == 1 && view.axes == 2 && view.stride[0] < view.stride[1] && results >= kTileColumns / 4;
  if (in_columns) return ReduceWay::column_parts;
  return how.count < 2 * kRowRun || results > kBlocksWanted / 8 ? ReduceWay::rows : ReduceWay::row_parts;
}

Status run(KernelCall& call) {
  const std::optional<Reduction> reduction = find_reduction(call);
  if (!reduction) return run_by_host(call);
  Tensor self = call.tensor("self");
  if (reduction->first != DType::none) {
    self = backend_of(call).scratch(reduction->first, self.sizes());
    backend_of(call).copy(self, call.tensor("self"));
  }
  SG_ASSIGN(ReductionPlan plan, plan_reduction(call, *reduction, self));
  if (plan.way == ReduceWay::rows) {
    device_of(call).launch(plan.by_warps ? "reduce_rows_by_warps" : "reduce_rows", plan.blocks, plan.args);
    return ok_status();
  }
  plan.parts.at = backend_of(call).part_sums(plan.parts);
  const char* kernel = plan.way == ReduceWay::column_parts ? "column_parts" : "row_parts";
  device_of(call).launch(kernel, plan.blocks, PartSumArgs{plan.args.from, plan.args.kept, plan.parts, plan.args.how});
  device_of(call).launch("finish_parts", blocks_for(plan.parts.results),
                         PartsSumArgs{plan.parts, plan.args.to.to, {}, plan.divisor, plan.power});
  return ok_status();
}

template <size_t... i>
constexpr std::array<KernelRow, sizeof...(i)> kernel_rows(std::index_sequence<i...>) {
  return {KernelRow{kReductions[i].op, run}...};
}
constexpr auto kRows = kernel_rows(std::make_index_sequence<std::size(kReductions)>());

}  // namespace

bool rows_by_warps(int64_t length) { return length <= kWarpRow; }
int64_t row_blocks(int64_t rows, int64_t length) {
  constexpr int64_t kWarpsOfBlock = kLanes / kWarpLanes;
  return std::min(rows_by_warps(length) ? (rows + kWarpsOfBlock - 1) / kWarpsOfBlock : rows, kMostRowBlocks);
}

int64_t tiles_of(int64_t columns) { return (columns + kTileColumns - 1) / kTileColumns; }

Parts parts_for(int64_t results, int64_t length, int64_t blocks, int64_t least) {
  const int64_t most = std::max<int64_t>(1, length / least);
  const int64_t count = std::clamp<int64_t>(kBlocksWanted / std::max<int64_t>(1, blocks), 1, most);
  Parts parts;
  parts.results = results;
  parts.length = length;
  parts.run = std::max<int64_t>(1, (length + count - 1) / count);
  parts.count = std::max<int64_t>(1, (length + parts.run - 1) / parts.run);
  return parts;
}

std::optional<Reduction> find_reduction(const KernelCall& call) {
  for (const ReductionRow& row : kReductions)
    if (row.op == call.op().name) return row.read(call);
  return std::nullopt;
}

Result<ReductionPlan> plan_reduction(const KernelCall& call, const Reduction& reduction, const Tensor& self) {
  ReductionPlan plan;
  std::array<bool, kMaxRank> reduced{};
  if (reduction.axes.empty()) reduced.fill(true);
  for (int axis : reduction.axes) reduced[static_cast<size_t>(axis)] = true;
  for (int axis = 0; axis < self.rank; ++axis)
    (reduced[static_cast<size_t>(axis)] ? plan.reduced : plan.kept).push_back(axis);
  ReduceArgs& args = plan.args;
  Tensor from = self;
  from.rank = 0;
  auto push = [&](int axis) {
    const auto at = static_cast<size_t>(from.rank++);
    from.shape[at] = self.dim(axis);
    from.stride[at] = self.step(axis);
  };
  for (int axis : plan.kept) push(axis);
  args.kept = from.rank;
  for (int axis : plan.reduced) push(axis), args.how.count *= self.dim(axis);
  const bool chooses = reduction.kind == Reduce::largest || reduction.kind == Reduce::smallest;
  if (chooses && args.how.count == 0 && self.rank > 0) return call.fail("there is nothing to choose from");
  auto kept_view = [&](const Tensor& t) {  // drops reduced axes that are kept with size 1
    if (t.is_none()) return View();
    Tensor view = t;
    if (t.rank == self.rank && self.rank > 0)
      for (int axis = self.rank - 1; axis >= 0; --axis)
        if (reduced[static_cast<size_t>(axis)]) view = drop_axis(view, axis);
    return element_view(view);
  };
  args.from = Device::view(from);
  merge_axes(&args.from, args.kept, from.rank);
  args.kept = merge_axes(&args.from, 0, args.kept);
  args.how.kind = reduction.kind;
  args.how.parameter = reduction.parameter;
  args.how.from = args.from.element;
  args.how.whole = !reduction.to.is_none() && !is_floating(reduction.to.dtype) && !is_complex(reduction.to.dtype);
  args.to = {kept_view(reduction.to), kept_view(reduction.mean), kept_view(reduction.index)};
  if (reduction.to.is_none()) args.to.to = args.to.index, args.to.to.data = nullptr;  // the rows are the positions'
  plan.way = way_of(args, self.dtype);
  const int64_t results = args.to.to.count;
  plan.by_warps = plan.way == ReduceWay::rows && rows_by_warps(args.how.count);
  plan.blocks = row_blocks(results, args.how.count);
  if (plan.way == ReduceWay::rows) return plan;
  const bool in_columns = plan.way == ReduceWay::column_parts;
  const int64_t blocks = in_columns ? tiles_of(results) : results;
  plan.parts = parts_for(results, args.how.count, blocks, in_columns ? kColumnRun : kRowRun);
  plan.blocks = blocks * plan.parts.count;
  plan.power = reduction.kind == Reduce::norm ? reduction.parameter : 1;
  plan.divisor = reduction.kind == Reduce::mean ? static_cast<double>(args.how.count) : 1;
  return plan;
}

std::span<const KernelRow> reduction_kernels() { return kRows; }

}  // namespace sg::cuda
