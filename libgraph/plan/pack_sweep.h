// Packing along time: what begins takes the smallest hole that it fits into, what ends leaves one. Internal to pack.
//
// Worse than first fit with all items known, as allocators are; but n log n however many holes there are.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/plan/pack.h"

namespace sg {

enum class SweepFrom : uint8_t { first_step, last_step };

// Places by item. An item of several rectangles holds its extent from the
// first of them to the last.
std::vector<int64_t> sweep_places(const PackInput& input, SweepFrom from);

}  // namespace sg
