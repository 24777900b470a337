#include "librun/cpu/kernels.h"

#include <unordered_map>

namespace sg {
namespace {

using Table = std::unordered_map<std::string_view, Kernel>;

Table build_table() {
  Table table;
  for (std::span<const KernelRow> family : {
           cpu::assert_kernels(),         cpu::attention_kernels(),      cpu::batch_norm_kernels(),
           cpu::column_kernels(),         cpu::convolution_kernels(),    cpu::ctc_loss_kernels(),
           cpu::distance_kernels(),       cpu::factory_kernels(),        cpu::flex_attention_kernels(),
           cpu::fourier_kernels(),        cpu::grid_sampler_kernels(),   cpu::group_norm_kernels(),
           cpu::grouped_mm_kernels(),     cpu::histogram_kernels(),      cpu::index_kernels(),
           cpu::join_kernels(),           cpu::layer_norm_kernels(),     cpu::cross_entropy_loss_kernels(),
           cpu::margin_loss_kernels(),    cpu::matmul_kernels(),         cpu::nll_loss_kernels(),
           cpu::cross_entropy_kernels(),  cpu::pair_loss_kernels(),      cpu::pointwise_kernels(),
           cpu::pool_kernels(),           cpu::random_kernels(),         cpu::rearrange_kernels(),
           cpu::reduce_extreme_kernels(), cpu::reduce_moments_kernels(), cpu::reduce_sum_kernels(),
           cpu::region_kernels(),         cpu::scaled_mm_kernels(),      cpu::scan_kernels(),
           cpu::scatter_kernels(),        cpu::search_kernels(),         cpu::segment_kernels(),
           cpu::shaped_random_kernels(),  cpu::softmax_kernels(),        cpu::sort_kernels(),
           cpu::decomposition_kernels(),  cpu::linear_system_kernels(),  cpu::spectral_kernels(),
           cpu::upsample_kernels(),       cpu::view_copy_kernels(),
       })
    for (const KernelRow& row : family) table.emplace(row.op, row.run);
  return table;
}

}  // namespace

Kernel find_cpu_kernel(std::string_view op) {
  static const Table table = build_table();
  auto it = table.find(op);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace sg
