// Sorts rows with many blocks: first tiles of a row, one block each, then rounds that merge pairs of sorted runs, with
// each block producing a part of the result. The sort is stable.
//
// The sorted items consist of a key, whose order as an unsigned number is the requested order, and a position. The
// element's type, the direction and NaNs only matter when keys are created. Runs are truncated to the number of items
// requested in the end, so selecting the largest few of a long row soon involves few items.
#pragma once

#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

struct SortItem {
  uint64_t key;
  int64_t place;  // in its row
};

inline constexpr int kMostOfLane = 8;                       // items that a lane sorts, and merges, at a time
inline constexpr int64_t kSortTile = kLanes * kMostOfLane;  // items that a block holds

struct SortKeys {
  View from;  // the rows
  bool descending = false;

  // Zeros of either sign are equal, and so are all NaNs, which are larger than any number.
  SG_FN uint64_t of(int64_t row, int64_t i) const {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    const int64_t offset = at_row(from, row, i);
    uint64_t key;
    if (is_floating(from.element)) {
      const double x = read<double>(from, offset);
      key = __builtin_bit_cast(uint64_t, x == 0 ? 0.0 : x);
      key = x != x ? ~uint64_t{0} : (key & kSign) != 0 ? ~key : key ^ kSign;
    } else {
      key = static_cast<uint64_t>(read_whole(from, offset)) ^ kSign;
    }
    return descending ? ~key : key;
  }
};

// Destination of sorted items: the next round, or, as positions and elements, the results.
struct SortedTo {
  SortItem* items = nullptr;  // null: this was the last round
  int64_t row_items = 0;      // stride between rows
  View values, indices;       // no data if not wanted
  int64_t* order = nullptr;   // [rows, length]
  int64_t length = 0;
  View from;  // the rows

  // `row` is relative to `first_row`, the first row of this launch.
  SG_FN void put(int64_t first_row, int64_t row, int64_t i, const SortItem& item) const {
    if (items) {
      items[row * row_items + i] = item;
      return;
    }
    row += first_row;
    if (values.data) copy_element(values, at_row(values, row, i), from, at_row(from, row, item.place));
    if (indices.data) write_whole(indices, at_row(indices, row, i), item.place);
    if (order) order[row * length + i] = item.place;
  }
};

// How many of the first `d` items of two merged sorted runs come from the first run.
SG_FN int64_t of_first_run(const SortItem* a, int64_t a_count, const SortItem* b, int64_t b_count, int64_t d) {
  int64_t low = d > b_count ? d - b_count : 0, high = d < a_count ? d : a_count;
  while (low < high) {
    const int64_t half = low + (high - low) / 2;
    if (b[d - 1 - half].key < a[half].key) high = half;
    else low = half + 1;
  }
  return low;
}

struct LaneItems {
  SortItem of[kMostOfLane];
};

// Items [d, d + n) of two merged runs.
SG_FN LaneItems merged_items(const SortItem* a, int64_t a_count, const SortItem* b, int64_t b_count, int64_t d, int n) {
  LaneItems out{};
  int64_t i = of_first_run(a, a_count, b, b_count, d), j = d - i;
  SG_UNROLL
  for (int k = 0; k < kMostOfLane; ++k) {
    if (k >= n || d + k >= a_count + b_count) continue;
    const bool is_second = i >= a_count || (j < b_count && b[j].key < a[i].key);
    out.of[k] = is_second ? b[j++] : a[i++];
  }
  return out;
}

// An odd-even sorting network, so that each item stays in a register; only strictly smaller items move ahead.
SG_FN void sort_items(LaneItems& own, int n) {
  SG_UNROLL
  for (int round = 0; round < kMostOfLane; ++round) {
    SG_UNROLL
    for (int k = round % 2; k + 1 < kMostOfLane; k += 2) {
      if (k + 1 >= n || own.of[k].key <= own.of[k + 1].key) continue;
      const SortItem held = own.of[k];
      own.of[k] = own.of[k + 1];
      own.of[k + 1] = held;
    }
  }
}

struct SortTilesArgs {
  SortKeys keys;                    // in the first round,
  const SortItem* items = nullptr;  // in later rounds, [rows, length]
  SortedTo to;
  int64_t first_row = 0, length = 0;  // length per row
  int64_t tiles = 0, kept = 0;        // tiles per row; items kept per tile
  int32_t of_lane = 1;                // items per lane
};

SG_KERNEL(sort_tiles, SortTilesArgs) {
  SG_SHARED(SortItem, held, kSortTile);
  const int64_t row = block.index() / args.tiles, tile = block.index() % args.tiles;
  const int of_lane = args.of_lane, size = kLanes * of_lane;
  const int64_t first = tile * size;
  const int count = static_cast<int>(args.length - first < size ? args.length - first : size);
  block.each([&](int lane) {
    for (int i = lane; i < count; i += kLanes)
      held[i] = args.items ? args.items[row * args.length + first + i]
                           : SortItem{args.keys.of(args.first_row + row, first + i), first + i};
  });
  block.sync();
  block.each([&](int lane) {
    const int begin = lane * of_lane, n = count - begin < of_lane ? count - begin : of_lane;
    LaneItems own{};
    SG_UNROLL
    for (int k = 0; k < kMostOfLane; ++k)
      if (k < n) own.of[k] = held[begin + k];
    sort_items(own, n);
    SG_UNROLL
    for (int k = 0; k < kMostOfLane; ++k)
      if (k < n) held[begin + k] = own.of[k];
  });
  for (int width = of_lane; width < count; width *= 2) {
    block.sync();
    auto merged = block.each([&](int lane) {
      const int begin = lane * of_lane;
      if (begin >= count) return LaneItems{};
      const int run = begin / (2 * width) * 2 * width, middle = run + width < count ? run + width : count;
      const int end = middle + width < count ? middle + width : count;
      return merged_items(held + run, middle - run, held + middle, end - middle, begin - run, of_lane);
    });
    block.sync();
    block.each(merged, [&](int lane, const LaneItems& own) {
      const int begin = lane * of_lane;
      SG_UNROLL
      for (int k = 0; k < kMostOfLane; ++k)
        if (k < of_lane && begin + k < count) held[begin + k] = own.of[k];
    });
  }
  block.sync();
  block.each([&](int lane) {
    for (int i = lane; i < count && i < args.kept; i += kLanes)
      args.to.put(args.first_row, row, tile * args.kept + i, held[i]);
  });
}

// --- rounds after the tiles ---

struct MergeRunsArgs {
  const SortItem* items = nullptr;  // [rows, length]: consecutive sorted runs, the last of which may be shorter
  SortedTo to;
  int64_t first_row = 0, length = 0;
  int64_t run = 0, kept = 0;     // items per run; items kept of two merged runs
  int64_t pairs = 0, parts = 0;  // per row; per pair, one block each
};

SG_KERNEL(merge_runs, MergeRunsArgs) {
  SG_SHARED(SortItem, held, kSortTile);
  SG_SHARED(int64_t, from_first, 2);
  const int64_t part = block.index() % args.parts, pair = block.index() / args.parts % args.pairs;
  const int64_t row = block.index() / args.parts / args.pairs;
  const int64_t at = pair * 2 * args.run, left = args.length - at;
  const SortItem *a = args.items + row * args.length + at, *b = a + args.run;
  const int64_t a_count = left < args.run ? left : args.run;
  const int64_t b_count = left - a_count < args.run ? left - a_count : args.run;
  const int64_t all = a_count + b_count < args.kept ? a_count + b_count : args.kept;
  const int64_t first = part * kSortTile < all ? part * kSortTile : all;
  const int count = static_cast<int>(all - first < kSortTile ? all - first : kSortTile);
  block.each([&](int lane) {
    if (lane < 2) from_first[lane] = of_first_run(a, a_count, b, b_count, lane == 0 ? first : first + count);
  });
  block.sync();
  const int64_t a_first = from_first[0], b_first = first - a_first;
  const int a_here = static_cast<int>(from_first[1] - a_first);
  block.each([&](int lane) {
    for (int i = lane; i < count; i += kLanes) held[i] = i < a_here ? a[a_first + i] : b[b_first + i - a_here];
  });
  block.sync();
  auto merged = block.each([&](int lane) {
    const int begin = lane * kMostOfLane;
    return begin < count ? merged_items(held, a_here, held + a_here, count - a_here, begin, kMostOfLane) : LaneItems{};
  });
  block.sync();
  block.each(merged, [&](int lane, const LaneItems& own) {
    SG_UNROLL
    for (int k = 0; k < kMostOfLane; ++k)
      if (lane * kMostOfLane + k < count) held[lane * kMostOfLane + k] = own.of[k];
  });
  block.sync();
  block.each([&](int lane) {
    for (int i = lane; i < count; i += kLanes) args.to.put(args.first_row, row, pair * args.kept + first + i, held[i]);
  });
}

}  // namespace sg::cuda
