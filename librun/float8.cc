#include "librun/float8.h"

#include <algorithm>
#include <string_view>

namespace sg {
namespace {

// By what they do with it: products; conversions, and pointwise ops that round as stores do; moves of bytes; fills.
constexpr std::string_view kTakers[] = {
    "aten._scaled_mm.default",
    "aten._scaled_grouped_mm.default",

    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "prims.convert_element_type.default",
    "aten.copy.default",
    "aten.copy_.default",
    "aten.abs.default",
    "aten.eq.Tensor",
    "aten.eq.Scalar",
    "aten.ne.Tensor",
    "aten.ne.Scalar",
    "aten.isnan.default",
    "aten.mul.Tensor",
    "aten.where.self",

    "aten.clone.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.cat.default",
    "aten.stack.default",
    "aten.split_with_sizes_copy.default",
    "aten.split_with_sizes_copy.out",
    "aten.reshape.default",
    "aten.flatten.using_ints",
    "aten.view_copy.default",
    "aten.expand_copy.default",
    "aten.permute_copy.default",
    "aten.slice_copy.Tensor",
    "aten.slice_backward.default",
    "aten.select_backward.default",
    "aten.slice_scatter.default",
    "aten.select_scatter.default",
    "aten.repeat.default",
    "aten.repeat_interleave.self_int",
    "aten.flip.default",
    "aten.roll.default",
    "aten.constant_pad_nd.default",
    "aten.embedding.default",
    "aten.index.Tensor",
    "aten._unsafe_index.Tensor",
    "aten.index_select.default",
    "sg.offload",
    "sg.reload",
    "sg.copy_bits",
    "sg.pack",
    "ao.offload.default",
    "ao.reload.default",

    "aten.empty.memory_format",
    "aten.empty_strided.default",
    "aten.empty_like.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    "aten.ones.default",
    "aten.ones_like.default",
    "aten.new_ones.default",
    "aten.full.default",
    "aten.full_like.default",
    "aten.new_full.default",
    "aten.fill.Scalar",
    "aten.fill_.Scalar",
    "aten.zero_.default",
};

}  // namespace

bool takes_float8(const OpInfo& op) {
  return op.has(kCollective) || op.has(kWait) || op.has(kSize) || op.name == "sg.call" ||
         std::ranges::find(kTakers, op.name) != std::ranges::end(kTakers);
}

}  // namespace sg
