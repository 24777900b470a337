// Which runs of neighbouring items are recorded as one thing to launch: the longest that nothing splits.
//
// An item is a step of a graph, or a group of steps that run as one. What cannot be part of a recording splits:
// collectives, copies to the host and back, and the waits for both, calls of bodies, numbers for the host, what hangs
// on numbers of the data, ops for which the host takes part.
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

// Runs of fewer than `least` items are not worth it. In order.
std::vector<Segment> plan_segments(std::span<const Split> items, size_t least);

}  // namespace sg
