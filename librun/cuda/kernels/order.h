// One element of each sorted row; the positions of flags, in order.
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

// One element of each sorted row: a median, or the most frequent value.
struct PickArgs {
  View from;                       // the rows, unsorted
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

// --- the positions of flags, in order ---

inline constexpr int64_t kFlagRun = 64;  // flags counted by a lane

struct FlagArgs {
  View flags;
  int64_t runs = 0;
  unsigned* count = nullptr;  // by run
  int64_t* begin = nullptr;   // by run: number of set flags before it; and the total
  int64_t* to = nullptr;      // the positions
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

// One block: each lane takes a part of the runs.
SG_KERNEL(flag_offsets, FlagArgs) {
  SG_SHARED(int64_t, before, kLanes);
  const int64_t part = (args.runs + kLanes - 1) / kLanes;
  block.each([&](int lane) {
    int64_t sum = 0;
    for (int64_t run = lane * part; run < (lane + 1) * part && run < args.runs; ++run) {
      args.begin[run] = sum;
      sum += args.count[run];
    }
    before[lane] = sum;
  });
  block.sync();
  block.each([&](int lane) {
    if (lane != 0) return;
    int64_t sum = 0;
    for (int l = 0; l < kLanes; ++l) {
      const int64_t own = before[l];
      before[l] = sum;
      sum += own;
    }
    args.begin[args.runs] = sum;
  });
  block.sync();
  block.each([&](int lane) {
    for (int64_t run = lane * part; run < (lane + 1) * part && run < args.runs; ++run) args.begin[run] += before[lane];
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
