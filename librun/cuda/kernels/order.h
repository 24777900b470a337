// Sorted rows and places: positions of a row sorted by merging runs of twice the length, equal elements by their place;
// one element of each sorted row; the places of flags, in order.
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

struct SortArgs {
  View values, indices, from;  // along the last axis; results have `kept` elements of it
  int64_t rows = 0, length = 0, kept = 0;
  int64_t *order = nullptr, *space = nullptr;  // [rows, length] each
  bool descending = false;
};

// Whether the element at a_at has to come before the one at b_at; false where they are equal.
SG_FN bool stands_before(const SortArgs& args, int64_t a_at, int64_t b_at) {
  if (is_floating(args.from.element)) {
    const double x = read<double>(args.from, a_at), y = read<double>(args.from, b_at);
    const bool x_nan = x != x, y_nan = y != y;
    if (x_nan || y_nan) return x_nan != y_nan && x_nan == args.descending;  // a NaN is larger than any number
    return x != y && (x < y) != args.descending;
  }
  const int64_t x = read_whole(args.from, a_at), y = read_whole(args.from, b_at);
  return x != y && (x < y) != args.descending;
}

// Where element `i` of the runs [first, middle) and [middle, end) comes to stand in both together.
SG_FN int64_t merged_place(const SortArgs& args, int64_t row, const int64_t* order, int64_t first, int64_t middle,
                           int64_t end, int64_t i) {
  const int64_t at = at_row(args.from, row, order[i]);
  const bool of_first = i < middle;
  int64_t low = of_first ? middle : first, high = of_first ? end : middle;
  const int64_t begin = low;
  while (low < high) {  // how many of the other run stand before it
    const int64_t half = low + (high - low) / 2, other = at_row(args.from, row, order[half]);
    if (of_first ? stands_before(args, other, at) : !stands_before(args, at, other)) low = half + 1;
    else high = half;
  }
  return first + (i - (of_first ? first : middle)) + (low - begin);
}

SG_KERNEL(sort_rows, SortArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) {
    int64_t *from = args.order + row * args.length, *to = args.space + row * args.length;
    block.each([&](int lane) {
      for (int64_t i = lane; i < args.length; i += kLanes) from[i] = i;
    });
    for (int64_t width = 1; width < args.length; width *= 2) {
      block.sync();
      block.each([&](int lane) {
        for (int64_t i = lane; i < args.length; i += kLanes) {
          const int64_t first = i / (2 * width) * 2 * width;
          const int64_t middle = first + width < args.length ? first + width : args.length;
          const int64_t end = middle + width < args.length ? middle + width : args.length;
          to[merged_place(args, row, from, first, middle, end, i)] = from[i];
        }
      });
      int64_t* held = from;
      from = to;
      to = held;
    }
    block.sync();
    block.each([&](int lane) {
      for (int64_t i = lane; i < args.kept; i += kLanes) {
        if (args.values.data)
          copy_element(args.values, at_row(args.values, row, i), args.from, at_row(args.from, row, from[i]));
        if (args.indices.data) write_whole(args.indices, at_row(args.indices, row, i), from[i]);
      }
    });
  }
}

// One element of each sorted row: a median, or what occurs most often.
struct PickArgs {
  View from;                       // the rows, as they were
  const int64_t* order = nullptr;  // [rows, length], sorted
  View values, indices;            // by row; indices may have no data
  int64_t rows = 0, length = 0;
  bool is_mode = false, ignores_nan = false;
};

SG_FN bool is_nan_at(const View& v, int64_t offset) {
  if (!is_floating(v.element)) return false;
  const double x = read<double>(v, offset);
  return x != x;
}

SG_FN int64_t median_place(const PickArgs& args, int64_t row, const int64_t* order) {
  int64_t counted = args.length;
  while (counted > 0 && is_nan_at(args.from, at_row(args.from, row, order[counted - 1]))) --counted;
  if (counted == args.length) return (counted - 1) / 2;
  return counted == 0 || !args.ignores_nan ? counted : (counted - 1) / 2;
}

SG_FN bool are_equal(const View& v, int64_t a, int64_t b) {
  if (is_floating(v.element)) return read<double>(v, a) == read<double>(v, b);
  return read_whole(v, a) == read_whole(v, b);
}

SG_FN int64_t mode_place(const PickArgs& args, int64_t row, const int64_t* order) {
  int64_t most = 0, run = 0, found = 0;
  for (int64_t i = 0; i < args.length; ++i) {
    ++run;
    if (i + 1 < args.length &&
        are_equal(args.from, at_row(args.from, row, order[i]), at_row(args.from, row, order[i + 1])))
      continue;
    if (run > most) most = run, found = i;
    run = 0;
  }
  return found;
}

SG_KERNEL(pick_of_sorted, PickArgs) {
  block.each([&](int lane) {
    for (int64_t row = block.index() * kLanes + lane; row < args.rows; row += block.count() * kLanes) {
      const int64_t* order = args.order + row * args.length;
      const int64_t at = order[args.is_mode ? mode_place(args, row, order) : median_place(args, row, order)];
      copy_element(args.values, offset_of(args.values, row), args.from, at_row(args.from, row, at));
      if (args.indices.data) write_whole(args.indices, offset_of(args.indices, row), at);
    }
  });
}

// --- what is where: the places of flags, in order ---

inline constexpr int64_t kFlagRun = 64;  // that a lane counts

struct FlagArgs {
  View flags;
  int64_t runs = 0;
  unsigned* count = nullptr;       // by run
  const int64_t* begin = nullptr;  // by run: how many come before it
  int64_t* to = nullptr;           // the places
};

SG_FN bool flag_at(const FlagArgs& args, int64_t i) { return is_true(args.flags, offset_of(args.flags, i)); }

SG_KERNEL(flag_counts, FlagArgs) {
  block.each([&](int lane) {
    for (int64_t run = block.index() * kLanes + lane; run < args.runs; run += block.count() * kLanes) {
      unsigned n = 0;
      for (int64_t i = run * kFlagRun; i < (run + 1) * kFlagRun && i < args.flags.count; ++i) n += flag_at(args, i);
      args.count[run] = n;
    }
  });
}

SG_KERNEL(flag_places, FlagArgs) {
  block.each([&](int lane) {
    for (int64_t run = block.index() * kLanes + lane; run < args.runs; run += block.count() * kLanes) {
      int64_t at = args.begin[run];
      for (int64_t i = run * kFlagRun; i < (run + 1) * kFlagRun && i < args.flags.count; ++i)
        if (flag_at(args, i)) args.to[at++] = i;
    }
  });
}

}  // namespace sg::cuda
