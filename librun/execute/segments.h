// Which runs of consecutive items are recorded and launched as one: the longest without splits.
//
// An item is a step of a graph, or a group of steps that run as one. Items that cannot be recorded split a run:
// collectives, copies to and from the host, waits for both, calls of bodies, numbers for the host, work that depends on
// numbers from the data, ops for which the host takes part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sg {

enum class Split : uint8_t { none, collective, copy, body, number, data, host };
const char* split_text(Split why);  // "numbers for the host"

struct Segment {
  size_t first = 0, count = 0;  // items
};

// In order; runs of fewer than `least` items are not worthwhile.
std::vector<Segment> plan_segments(std::span<const Split> items, size_t least);

}  // namespace sg
