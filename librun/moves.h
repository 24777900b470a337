// Ops that move elements without interpreting them, or fill memory. They accept every type, and run wherever memory can
// be copied and filled.
#pragma once

#include <string_view>

namespace sg {

inline constexpr std::string_view kMoves[] = {
    "aten.cat.default",
    "aten.stack.default",
    "aten.split_with_sizes_copy.default",
    "aten.split_with_sizes_copy.out",
    "sg.pack",
    "sg.copy_bits",
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
    "aten.flip.default",
    "aten.constant_pad_nd.default",
    "aten.repeat_interleave.self_int",
};

inline constexpr std::string_view kFills[] = {
    "aten.empty.memory_format", "aten.empty_strided.default",     "aten.empty_like.default",
    "aten.new_empty.default",   "aten.new_empty_strided.default", "aten.zeros.default",
    "aten.zeros_like.default",  "aten.new_zeros.default",         "aten.ones.default",
    "aten.ones_like.default",   "aten.new_ones.default",          "aten.full.default",
    "aten.full_like.default",   "aten.new_full.default",
};

}  // namespace sg
