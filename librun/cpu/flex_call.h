// What a call of FlexAttention says: to the processor's kernels, and to those of a backend.
//
//     score = score_mod(scale * query @ key^T, batch, head, q, k, captured...)
//             where mask_mod(batch, head, q, k, captured...)
//
// Logarithms and maxima are returned in units of log2. The lists of blocks in block_mask say which scores mask_mod can
// let through; what counts is mask_mod.
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
  std::vector<LaneValue> score_captures, mask_captures;  // what the nested graphs are given besides

  AttentionGradients gradients(KernelCall& call) const;  // of a backward call
};

// Of a call of either direction.
Result<FlexCall> flex_call(const KernelCall& call);

// What lanes differ in: the score, the gradient of what score_mod made of it, and their place.
struct FlexLanes {
  LaneValue score, gradient;
  std::array<LaneValue, 4> place, narrow_place;  // batch, head, query, key: as i64 and as i32
};

// What a nested graph is given: [score,] batch, head, q, k [, gradient], captured...
enum class FlexGraph : uint8_t { score, mask, joint };
Result<std::vector<LaneValue>> flex_inputs(FlexGraph which, const FlexCall& flex, const FlexLanes& lanes);

// Whether what a graph gives for its lanes is what attention goes on with: one float (of a joint graph, no more than
// that), or one bool.
Status check_flex_results(FlexGraph which, std::span<const LaneValue> results);

}  // namespace sg::cpu
