// The arguments of a FlexAttention call, for the CPU's kernels and those of a backend.
//
//     score = score_mod(scale * query @ key^T, batch, head, q, k, captured...)
//             where mask_mod(batch, head, q, k, captured...)
//
// Logarithms and maxima are returned in units of log2. The block lists in block_mask say which scores mask_mod can let
// through, but mask_mod decides.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "librun/cpu/attention.h"
#include "librun/cpu/lane_graph.h"

namespace sg::cpu {

inline constexpr double kLog2OfE = 1.44269504088896340736;

struct FlexCall {
  Attention attention;
  const Graph *score = nullptr, *mask = nullptr;
  const Graph* joint = nullptr;                          // backward only
  std::vector<LaneValue> score_captures, mask_captures;  // additional inputs of the nested graphs

  AttentionGradients gradients(KernelCall& call) const;  // for a backward call
};

// For a call in either direction.
Result<FlexCall> flex_call(const KernelCall& call);

// What differs between lanes: the score, the gradient of score_mod's result, and their position.
struct FlexLanes {
  LaneValue score, gradient;
  std::array<LaneValue, 4> place, narrow_place;  // batch, head, query, key: as i64 and as i32
};

// Inputs of a nested graph: [score,] batch, head, q, k [, gradient], captured...
enum class FlexGraph : uint8_t { score, mask, joint };
Result<std::vector<LaneValue>> flex_inputs(FlexGraph which, const FlexCall& flex, const FlexLanes& lanes);

// Checks that a graph's results for its lanes are what attention needs: one float (of a joint graph, exactly one), or
// one bool.
Status check_flex_results(FlexGraph which, std::span<const LaneValue> results);

}  // namespace sg::cpu
