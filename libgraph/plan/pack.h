// Packing: places for items on a line of bytes so that items in use at the same time do not overlap and the line is
// short.
//
// Item      One or more rectangles that keep their distance: a piece of memory in use during the steps
//           first..last (both included) that begins `offset` bytes into the item. Most items are one
//           rectangle; what takes over a part of other memory, or lies in the frame of a call, is placed
//           together with it.
// Method    First fit, items in several orders (size, crowding, area, life, start). Where the best is too far above the
//           lower bound, a local search: valleys of the skyline are filled (pack_valley.h) by keys that are drawn, or
//           those of the best so far with some changed, and what that gives goes through first fit once more. Where
//           items have several rectangles, orders are changed as well. A handful of items goes through every order.
//           The work is bounded by a count of elementary steps and not by a clock: equal input, equal places on every
//           machine. Where they do not suffice for one order (tens of thousands of pieces that are kept for long leave
//           as many holes), what begins takes the smallest hole at that time (pack_sweep.h).
// Cost      O(log(steps) * log(items)) a placement in practice; at most `work`, and n log n of the items, in all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sg {

struct PackRect {
  uint32_t first = 0, last = 0;  // steps
  int64_t offset = 0;            // bytes from the begin of the item, >= 0
  int64_t bytes = 0;             // > 0
  friend bool operator==(const PackRect&, const PackRect&) = default;
};

struct PackItem {
  uint32_t rect_begin = 0, rect_count = 0;  // into PackInput::rects
  int64_t alignment = 1;                    // of the item's place; > 0
  bool low = false;                         // rather near the begin of the line, where that costs nothing
  friend bool operator==(const PackItem&, const PackItem&) = default;
};

struct PackInput {
  std::vector<PackItem> items;
  std::vector<PackRect> rects;
  uint32_t steps = 0;  // above every `last`
  friend bool operator==(const PackInput&, const PackInput&) = default;
};

struct PackOptions {
  size_t work = 40000000;  // elementary steps, a few nanoseconds each
  bool search = true;      // after the orders
  friend bool operator==(const PackOptions&, const PackOptions&) = default;
};

struct Packing {
  std::vector<int64_t> places;  // by item
  int64_t bytes = 0;            // end of the last item
  int64_t lower_bound = 0;      // the largest sum of bytes in use at one step; overlap within an item counted once
  bool overflow = false;        // sizes pass 62 bits together: nothing is placed
};

Packing pack(const PackInput& input, const PackOptions& options = {});

}  // namespace sg
