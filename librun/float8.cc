#include "librun/float8.h"

#include <algorithm>
#include <string_view>

#include "librun/moves.h"

namespace sg {
namespace {

// Ops besides kMoves and kFills, grouped by what they do: products; conversions, and pointwise ops that only round;
// copies by index or to other memory; fills in place.
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
    "aten.roll.default",
    "aten.embedding.default",
    "aten.index.Tensor",
    "aten._unsafe_index.Tensor",
    "aten.index_select.default",
    "sg.offload",
    "sg.reload",
    "ao.offload.default",
    "ao.reload.default",

    "aten.fill.Scalar",
    "aten.fill_.Scalar",
    "aten.zero_.default",
};

}  // namespace

bool takes_float8(const OpInfo& op) {
  const auto is_in = [&](const auto& ops) { return std::ranges::find(ops, op.name) != std::ranges::end(ops); };
  return op.has(kCollective) || op.has(kWait) || op.has(kSize) || op.name == "sg.call" || is_in(kTakers) ||
         is_in(kMoves) || is_in(kFills);
}

}  // namespace sg
