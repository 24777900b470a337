// The table of kernels: which kernel an op has on the device.
#include <unordered_map>

#include "librun/cpu/kernels.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/moves.h"

namespace sg::cuda {
namespace {

// CPU kernels that run here unchanged, in addition to those of kMoves and kFills.
constexpr std::string_view kAsOnProcessor[] = {
    // only use copy, fill and contiguous (cpu/fill.h)
    "bucketing._pre_bucket_all_gather.default",
    "bucketing._pre_bucket_reduce_scatter.default",
    "aten.as_strided_scatter.default",
    "aten.empty_permuted.default",
    "aten.scalar_tensor.default",
    "aten.eye.default",
    "aten.eye.m",
    // use products and attention of the backend
    "aten.mm.default",
    "aten._int_mm.default",
    "aten.bmm.default",
    "aten.mv.default",
    "aten.dot.default",
    "aten.addmm.default",
    "aten.addmm_.default",
    "aten.addmv.default",
    "aten.baddbmm.default",
    "aten.matmul.default",
    "aten.linear.default",
    // use work written once for both (work/)
    "aten.pixel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.channel_shuffle.default",
    "aten.roll.default",
    "aten.pad.default",
    "aten.bucketize.Tensor",
    "aten.searchsorted.Tensor",
    "aten.mse_loss.default",
    "aten.mse_loss_backward.default",
    "aten.binary_cross_entropy_with_logits.default",
    "aten.smooth_l1_loss.default",
    "aten.smooth_l1_loss_backward.default",
    "aten.huber_loss.default",
    "aten.huber_loss_backward.default",
    "aten.soft_margin_loss.default",
    "aten.soft_margin_loss_backward.default",
    "aten.binary_cross_entropy.default",
    "aten.binary_cross_entropy_backward.default",
    "aten.log_sigmoid_forward.default",
    "aten._prelu_kernel_backward.default",
    "aten.glu.default",
    "aten.glu_backward.default",
    "aten.cross_entropy_loss.default",
    "aten.multi_margin_loss_backward.default",
    "aten.multilabel_margin_loss_forward.default",
    "aten.multilabel_margin_loss_backward.default",
    "aten.diff.default",
    "aten.isin.Tensor_Tensor",
    "aten.linspace.default",
    "aten.tril_indices.default",
    "aten.triu_indices.default",
    "aten.rrelu_with_noise_backward.default",
    "aten.im2col.default",
    "aten.col2im.default",
    "aten.unfold_backward.default",
    "aten._cdist_forward.default",
    "aten._cdist_backward.default",
    "aten._pdist_forward.default",
    "aten._pdist_backward.default",
    "aten._weight_norm_interface.default",
    "aten._weight_norm_interface_backward.default",
    // only look at numbers on the host
    "aten._assert_scalar.default",
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
};

using Table = std::unordered_map<std::string_view, Kernel>;

Table build_table() {
  Table table;
  const auto take_from_cpu = [&](const auto& ops) {
    for (std::string_view op : ops)
      if (Kernel kernel = find_cpu_kernel(op)) table.emplace(op, kernel);
  };
  take_from_cpu(kMoves);
  take_from_cpu(kFills);
  take_from_cpu(kAsOnProcessor);
  for (auto family : {cpu::upsample_kernels(), cpu::pool_kernels(), cpu::attention_kernels()})  // by work, or by attend
    for (const KernelRow& row : family) table.emplace(row.op, row.run);
  for (auto family :
       {grouped_kernels(), scaled_kernels(), flex_attention_kernels(), loss_kernels(), ctc_kernels(),
        reduction_kernels(), row_kernels(), index_kernels(), other_kernels(), random_kernels(), channel_kernels(),
        convolution_kernels(), grid_kernels(), search_kernels(), segment_kernels(), set_kernels(), sort_kernels()})
    for (const KernelRow& row : family) table.emplace(row.op, row.run);
  return table;
}

}  // namespace

Kernel CudaBackend::find_kernel(const OpInfo& op) const {
  static const Table table = build_table();
  if (auto it = table.find(op.name); it != table.end()) return it->second;
  if (knows_pointwise(op.name)) return run_pointwise;
  return find_cpu_kernel(op.name) ? run_by_host : nullptr;
}

bool CudaBackend::runs_on_host(const Program& program, const Graph& graph, NodeId n) const {
  const OpInfo& op = *graph.op_info(n);
  return find_kernel(op) == run_by_host || (op.has(kHigherOrder) && flex_runs_on_host(*this, program, graph, n));
}

}  // namespace sg::cuda
