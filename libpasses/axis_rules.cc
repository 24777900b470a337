#include "libpasses/axis_rules.h"

#include <unordered_map>

namespace sg {
namespace {

constexpr AxisRow kRows[] = {
    // views
    {"aten.view.default", axis::view, "view", true},
    {"aten._unsafe_view.default", axis::view, "view", true},
    {"aten.reshape.default", axis::view, "view", true},
    {"aten.view_copy.default", axis::view, "view", true},
    {"aten.flatten.using_ints", axis::view, "view"},
    {"aten.expand.default", axis::expand, "expand", true},
    {"aten.t.default", axis::transpose, "transpose"},
    {"aten.numpy_T.default", axis::transpose, "transpose"},
    {"aten.transpose.int", axis::transpose, "transpose"},
    {"aten.permute.default", axis::permute, "permute"},
    {"aten.permute_copy.default", axis::permute, "permute"},
    {"aten.squeeze.default", axis::squeeze, "squeeze"},
    {"aten.squeeze.dim", axis::squeeze, "squeeze"},
    {"aten.squeeze.dims", axis::squeeze, "squeeze"},
    {"aten.unsqueeze.default", axis::unsqueeze, "unsqueeze"},
    {"aten.view.dtype", axis::keep_inner, "view of other elements"},
    {"aten.view_as_complex.default", axis::keep_inner, "view of other elements"},
    {"aten.view_as_real.default", axis::keep_inner, "view of other elements"},
    {"aten._conj.default", axis::keep_inner, "view of other elements"},
    {"aten.slice.Tensor", axis::slice, "slice"},
    {"aten.slice_backward.default", axis::slice_backward, "slice backward", true},
    {"aten.select_backward.default", axis::slice_backward, "slice backward", true},
    {"aten.select.int", axis::select, "select"},
    {"aten.split.Tensor", axis::split, "split"},
    {"aten.split_with_sizes.default", axis::split, "split"},
    {"aten.chunk.default", axis::split, "split"},
    {"aten.unbind.int", axis::unbind, "select"},
    {"aten.cat.default", axis::cat, "cat"},
    {"aten.stack.default", axis::stack, "stack"},
    {"aten.alias.default", axis::same, "same"},
    {"aten.detach.default", axis::same, "same"},
    // products
    {"aten.mm.default", axis::mm, "product"},
    {"aten.bmm.default", axis::bmm, "product"},
    {"aten.addmm.default", axis::addmm, "product"},
    {"aten.linear.default", axis::linear, "product"},
    // reductions and what works along one axis
    {"aten.sum.default", axis::sum, "sum"},
    {"aten.sum.dim_IntList", axis::sum, "sum"},
    {"aten.mean.default", axis::reduce, "reduction"},
    {"aten.mean.dim", axis::reduce, "reduction"},
    {"aten.amax.default", axis::reduce, "reduction"},
    {"aten.amin.default", axis::reduce, "reduction"},
    {"aten.max.dim", axis::reduce, "reduction"},
    {"aten.min.dim", axis::reduce, "reduction"},
    {"aten.argmax.default", axis::reduce, "reduction"},
    {"aten.argmin.default", axis::reduce, "reduction"},
    {"aten.any.dim", axis::reduce, "reduction"},
    {"aten.all.dim", axis::reduce, "reduction"},
    {"aten.logsumexp.default", axis::reduce, "reduction"},
    {"aten.var.correction", axis::reduce, "reduction"},
    {"aten.var_mean.correction", axis::reduce, "reduction"},
    {"aten.linalg_vector_norm.default", axis::reduce, "reduction"},
    {"aten._softmax.default", axis::along_dim, "work along one axis"},
    {"aten._safe_softmax.default", axis::along_dim, "work along one axis"},
    {"aten._log_softmax.default", axis::along_dim, "work along one axis"},
    {"aten._softmax_backward_data.default", axis::along_dim, "work along one axis"},
    {"aten._log_softmax_backward_data.default", axis::along_dim, "work along one axis"},
    {"aten.cumsum.default", axis::along_dim, "work along one axis"},
    {"aten.topk.default", axis::along_dim, "work along one axis"},
    {"aten.native_layer_norm.default", axis::layer_norm, "norm"},
    {"aten._fused_rms_norm.default", axis::layer_norm, "norm"},
    {"aten.native_layer_norm_backward.default", axis::layer_norm_backward, "norm backward"},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", axis::attention, "attention"},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", axis::attention, "attention"},
    {"aten.embedding.default", axis::embedding, "embedding"},
    {"aten.embedding_dense_backward.default", axis::embedding_backward, "embedding backward"},
    // by index
    {"aten.index.Tensor", axis::index, "look-up by index"},
    {"aten._unsafe_index.Tensor", axis::index, "look-up by index"},
    {"aten.index_select.default", axis::index_select, "look-up by index"},
    {"aten.index_put.default", axis::index_put, "write by index"},
    {"aten._unsafe_index_put.default", axis::index_put, "write by index"},
    {"aten.index_put_.default", axis::index_put, "write by index"},
    {"aten.gather.default", axis::gather, "look-up by index"},
    {"aten.scatter.src", axis::scatter, "write by index"},
    {"aten.scatter.value", axis::scatter, "write by index"},
    {"aten.scatter_.src", axis::scatter, "write by index"},
    {"aten.scatter_.value", axis::scatter, "write by index"},
    {"aten.scatter_add.default", axis::scatter, "write by index"},
    {"aten.scatter_add_.default", axis::scatter, "write by index"},
    {"torchtitan.deterministic_scatter_add.default", axis::scatter, "write by index"},
    // what the data decides
    {"aten.sort.default", axis::sort, "sort"},
    {"aten.sort.stable", axis::sort, "sort"},
    {"aten.argsort.default", axis::sort, "sort"},
    {"aten.argsort.stable", axis::sort, "sort"},
    {"aten.histc.default", axis::histogram, "count"},
    {"aten.repeat_interleave.Tensor", axis::repeat_interleave, "repeat by counts", true},
    {"aten._grouped_mm.default", axis::grouped_mm, "grouped product"},
    {"_c10d_functional.all_to_all_single.default", axis::exchange, "exchange", true},
    {"_c10d_functional.wait_tensor.default", axis::same, "same"},
    {"_c10d_functional.all_reduce.default", axis::reduce_ranks, "collective"},
    {"_c10d_functional.reduce_scatter_tensor.default", axis::reduce_ranks, "collective"},
    {"aten._local_scalar_dense.default", axis::read_number, "number on the host"},
    // factories
    {"aten.zeros_like.default", axis::like, "factory"},
    {"aten.ones_like.default", axis::like, "factory"},
    {"aten.empty_like.default", axis::like, "factory"},
    {"aten.full_like.default", axis::like, "factory"},
    {"aten.zeros.default", axis::sized_factory, "factory", true},
    {"aten.ones.default", axis::sized_factory, "factory", true},
    {"aten.empty.memory_format", axis::sized_factory, "factory", true},
    {"aten.full.default", axis::sized_factory, "factory", true},
    {"aten.new_zeros.default", axis::sized_factory, "factory", true},
    {"aten.new_ones.default", axis::sized_factory, "factory", true},
    {"aten.new_empty.default", axis::sized_factory, "factory", true},
    {"aten.new_full.default", axis::sized_factory, "factory", true},
    {"aten.arange.default", axis::arange, "factory", true},
    {"aten._assert_scalar.default", axis::assertion, "assertion", true},
    {"aten.sym_constrain_range.default", axis::assertion, "assertion", true},
    {"aten.sym_constrain_range_for_size.default", axis::assertion, "assertion", true},
};

constexpr AxisRow kPointwiseRow{"", axis::pointwise, "elementwise"};
constexpr AxisRow kSizeRow{"", axis::size, "size", true};

}  // namespace

std::span<const AxisRow> all_axis_rules() { return kRows; }

const AxisRow* find_axis_rule(const OpInfo& op) {
  static const auto rows = [] {
    std::unordered_map<std::string_view, const AxisRow*> out;
    for (const AxisRow& row : kRows) out.emplace(row.op, &row);
    return out;
  }();
  if (auto it = rows.find(op.name); it != rows.end()) return it->second;
  if (op.has(kSize)) return &kSizeRow;
  return op.has(kPointwise) ? &kPointwiseRow : nullptr;
}

bool is_constant_fill(const OpInfo& op) {
  return op.name == "aten.zeros.default" || op.name == "aten.ones.default" || op.name == "aten.empty.memory_format" ||
         op.name == "aten.full.default" || op.name == "aten.new_zeros.default" || op.name == "aten.new_ones.default" ||
         op.name == "aten.new_empty.default" || op.name == "aten.new_full.default";
}

bool is_iota(const OpInfo& op) { return op.name == "aten.arange.default"; }

}  // namespace sg
