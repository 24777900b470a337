// Running sums, products and extremes along the last axis: one lane per row; long rows of integers, whose sums are the
// same in any order, one block each.
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

enum class Scan : uint8_t { sum, product, log_sum, largest, smallest };

struct ScanArgs {
  View to, from;
  View index;  // extremes: their position, the last of equal ones
  int64_t rows = 0, length = 0;
  bool whole = false;
  Scan kind = Scan::sum;
};

// log(exp(a) + exp(b)); two equal infinities give that infinity.
SG_FN double add_logs(double a, double b) {
  if (a != a || b != b) return a + b;
  const double low = a < b ? a : b, high = a < b ? b : a;
  return low == high && low - low != 0 ? low : high + ::log1p(::exp(low - high));
}

SG_FN void scan_whole(const ScanArgs& args, int64_t row) {
  uint64_t total = args.kind == Scan::product;
  auto add = [&](int64_t number, int64_t i) {
    const auto x = static_cast<uint64_t>(number);
    total = args.kind == Scan::product ? total * x : total + x;
    write_whole(args.to, at_row(args.to, row, i), static_cast<int64_t>(total));
  };
  int64_t i = 0;
  if (args.from.element == Element::i64) {  // loads several before using the first, because of the memory latency
    constexpr int kAtOnce = 8;
    const int64_t* from = &at<int64_t>(args.from, at_row(args.from, row, 0));
    const int64_t step = args.from.stride[args.from.axes - 1];
    for (; i + kAtOnce <= args.length; i += kAtOnce) {
      int64_t x[kAtOnce];
      SG_UNROLL
      for (int k = 0; k < kAtOnce; ++k) x[k] = from[(i + k) * step];
      SG_UNROLL
      for (int k = 0; k < kAtOnce; ++k) add(x[k], i + k);
    }
  }
  for (; i < args.length; ++i) add(read_whole(args.from, at_row(args.from, row, i)), i);
}

SG_FN void scan_floats(const ScanArgs& args, int64_t row) {
  double acc = args.kind == Scan::product ? 1 : args.kind == Scan::log_sum ? -math::infinity() : 0;
  for (int64_t i = 0; i < args.length; ++i) {
    const double x = read<double>(args.from, at_row(args.from, row, i));
    acc = args.kind == Scan::product ? acc * x : args.kind == Scan::log_sum ? add_logs(acc, x) : acc + x;
    write<double>(args.to, at_row(args.to, row, i), acc);
  }
}

SG_FN void scan_complex(const ScanArgs& args, int64_t row) {
  double re = args.kind == Scan::product, im = 0;
  for (int64_t i = 0; i < args.length; ++i) {
    const int64_t at = at_row(args.from, row, i);
    const double x = read<double>(args.from, at), y = read_imaginary<double>(args.from, at), old = re;
    re = args.kind == Scan::product ? re * x - im * y : re + x;
    im = args.kind == Scan::product ? old * y + im * x : im + y;
    write_partial(args.to, at_row(args.to, row, i), {re, im, 0}, false);
  }
}

SG_FN void scan_extremes(const ScanArgs& args, int64_t row) {
  const bool largest = args.kind == Scan::largest;
  int64_t best = 0;
  for (int64_t i = 0; i < args.length; ++i) {
    const int64_t at = at_row(args.from, row, i), held = at_row(args.from, row, best);
    bool better;
    if (args.whole) {
      const int64_t x = read_whole(args.from, at), top = read_whole(args.from, held);
      better = largest ? x >= top : x <= top;
    } else {
      const double x = read<double>(args.from, at), top = read<double>(args.from, held);
      better = x != x || (top == top && (largest ? x >= top : x <= top));
    }
    if (better) best = i;
    copy_element(args.to, at_row(args.to, row, i), args.from, at_row(args.from, row, best));
    write_whole(args.index, at_row(args.index, row, i), best);
  }
}

// --- by blocks ---

inline constexpr int kScanRun = 8;     // consecutive numbers of a lane
inline constexpr int kScanGroup = 16;  // lanes whose totals one lane adds up
inline constexpr int64_t kLongScan = 2 * kLanes;

struct ScanRun {
  uint64_t x[kScanRun];
};

SG_FN uint64_t scanned(const ScanArgs& args, uint64_t a, uint64_t b) {
  return args.kind == Scan::product ? a * b : a + b;
}

// The lane's numbers from `first` on, as running totals.
SG_FN ScanRun scan_run(const ScanArgs& args, int64_t row_offset, int64_t first) {
  ScanRun run;
  uint64_t total = args.kind == Scan::product;
  SG_UNROLL for (int k = 0; k < kScanRun; ++k) {
    const int64_t i = first + k;
    if (i < args.length) {
      const int64_t at_offset = row_offset + i * args.from.stride[args.from.axes - 1];
      total = scanned(args, total, static_cast<uint64_t>(read_whole(args.from, at_offset)));
    }
    run.x[k] = total;
  }
  return run;
}

SG_KERNEL(scan_long_rows, ScanArgs) {
  constexpr int kGroups = kLanes / kScanGroup;
  SG_SHARED(uint64_t, totals, kLanes);
  SG_SHARED(uint64_t, groups, kGroups);
  const uint64_t none = args.kind == Scan::product;
  for (int64_t row = block.index(); row < args.rows; row += block.count()) {
    const int64_t from = at_row(args.from, row, 0), to = at_row(args.to, row, 0);
    uint64_t carried = none;  // of the numbers before this tile
    for (int64_t tile = 0; tile < args.length; tile += kLanes * kScanRun) {
      auto runs = block.each([&](int lane) {
        const ScanRun run = scan_run(args, from, tile + lane * kScanRun);
        totals[lane] = run.x[kScanRun - 1];
        return run;
      });
      block.sync();
      block.each([&](int lane) {
        if (lane >= kGroups) return;
        uint64_t sum = none;
        for (int i = 0; i < kScanGroup; ++i) sum = scanned(args, sum, totals[lane * kScanGroup + i]);
        groups[lane] = sum;
      });
      block.sync();
      block.each(runs, [&](int lane, const ScanRun& run) {
        uint64_t before = carried;
        for (int g = 0; g < lane / kScanGroup; ++g) before = scanned(args, before, groups[g]);
        for (int i = lane / kScanGroup * kScanGroup; i < lane; ++i) before = scanned(args, before, totals[i]);
        SG_UNROLL for (int k = 0; k < kScanRun; ++k) {
          const int64_t i = tile + lane * kScanRun + k;
          if (i < args.length)
            write_whole(args.to, to + i * args.to.stride[args.to.axes - 1],
                        static_cast<int64_t>(scanned(args, before, run.x[k])));
        }
      });
      for (int g = 0; g < kGroups; ++g) carried = scanned(args, carried, groups[g]);
      block.sync();  // before the next tile's totals
    }
  }
}

SG_KERNEL(scan_rows, ScanArgs) {
  block.each([&](int lane) {
    for (int64_t row = block.index() * kLanes + lane; row < args.rows; row += block.count() * kLanes) {
      if (args.kind >= Scan::largest) scan_extremes(args, row);
      else if (is_complex(args.from.element)) scan_complex(args, row);
      else if (args.whole) scan_whole(args, row);
      else scan_floats(args, row);
    }
  });
}

}  // namespace sg::cuda
