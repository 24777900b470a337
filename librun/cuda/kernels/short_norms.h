// Layer norms of short rows: a warp for each, whose lanes keep 8 neighbours at a time in registers. So a row is read once,
// 16 bytes a lane, and no lane waits for another warp. In double, as norms.h.
//
// REQUIRES  lines of one type (NormArgs), numbers side by side, at multiples of 16 bytes; a length that is a multiple of 8
//           and at most 1024 or 2048
#pragma once

#include "librun/cuda/kernels/norms.h"

namespace sg::cuda {

inline constexpr int kRun = 8, kRunsOfWarp = 32;

template <class Raw>
struct alignas(16) Run {
  Raw x[kRun];
};

// What a lane has of a row: of every kRun * kRunsOfWarp numbers a run, as it lies in memory.
template <class Raw, int C>
struct RowRuns {
  Run<Raw> run[C];

  SG_FN double operator()(int c, int i) const { return static_cast<double>(value_of(run[c].x[i])); }
};

SG_FN int run_at(int lane, int c) { return (c * kRunsOfWarp + lane % kRunsOfWarp) * kRun; }

template <class Raw>
SG_FN Run<Raw> run_of(const View& v, int64_t at) {
  return *reinterpret_cast<const Run<Raw>*>(reinterpret_cast<const Raw*>(v.data) + at);
}
template <class Raw, int C>
SG_FN void load_runs(const View& v, int64_t row, const NormArgs& args, int lane, RowRuns<Raw, C>& to) {
  SG_UNROLL for (int c = 0; c < C; ++c) {
    const int at = run_at(lane, c);
    to.run[c] = row < args.rows && at < args.length ? run_of<Raw>(v, row * args.length + at) : Run<Raw>{};
  }
}
template <class Raw>
SG_FN void store_run(const View& v, int64_t at, const Run<Raw>& run) {
  *reinterpret_cast<Run<Raw>*>(reinterpret_cast<Raw*>(v.data) + at) = run;
}

// What the weights or biases of a run are, `none` where there are no such.
template <class Raw>
struct Parameters {
  Run<Raw> run;
  bool there;
  double none;

  SG_FN Parameters(const View& v, int at, double if_none) : run{}, there(v.data != nullptr), none(if_none) {
    if (there) run = run_of<Raw>(v, at);
  }
  SG_FN double operator[](int i) const { return there ? static_cast<double>(value_of(run.x[i])) : none; }
};

template <class Raw, int C>
SG_FN void short_norm_rows(Block& block, const NormArgs& args) {
  const double n = static_cast<double>(args.length);
  for (int64_t first = block.index() * (kLanes / 32); first < args.rows; first += block.count() * (kLanes / 32)) {
    Lanes<RowRuns<Raw, C>> rows;
    block.each_of([&](int lane, RowRuns<Raw, C>& r) { load_runs<Raw>(args.from, first + lane / 32, args, lane, r); },
                  rows);
    Lanes<double> sum = block.each_of(
        [&](int, const RowRuns<Raw, C>& r) {  // what is not there is 0
          double acc = 0;
          if (args.centered)
            SG_UNROLL for (int c = 0; c < C; ++c) SG_UNROLL for (int i = 0; i < kRun; ++i) acc += r(c, i);
          return acc;
        },
        rows);
    sum = block.reduce_warps(sum, Sum());
    Lanes<double> spread = block.each_of(
        [&](int lane, const RowRuns<Raw, C>& r, double s) {
          const double mean = s / n;
          double acc = 0;
          SG_UNROLL for (int c = 0; c < C; ++c) {
            if (run_at(lane, c) >= args.length) continue;
            SG_UNROLL for (int i = 0; i < kRun; ++i) acc += (r(c, i) - mean) * (r(c, i) - mean);
          }
          return acc;
        },
        rows, sum);
    spread = block.reduce_warps(spread, Sum());
    block.each_of(
        [&](int lane, const RowRuns<Raw, C>& r, double s, double squares) {
          const int64_t row = first + lane / 32;
          if (row >= args.rows) return;
          const double mean = s / n, rstd = 1 / ::sqrt(squares / n + args.eps);
          SG_UNROLL for (int c = 0; c < C; ++c) {
            const int at = run_at(lane, c);
            if (at >= args.length) continue;
            const Parameters<Raw> weight(args.weight, at, 1), bias(args.bias, at, 0);
            Run<Raw> out;
            SG_UNROLL for (int i = 0; i < kRun; ++i) out.x[i] =
                stored_as<Raw>(static_cast<float>((r(c, i) - mean) * rstd * weight[i] + bias[i]));
            store_run(args.to, row * args.length + at, out);
          }
          if (lane % 32 == 0 && args.mean.data) write<double>(args.mean, row, mean);
          if (lane % 32 == 0 && args.rstd.data) write<double>(args.rstd, row, rstd);
        },
        rows, sum, spread);
  }
}

template <class Raw, int C>
SG_FN void short_norm_backward_rows(Block& block, const NormArgs& args) {
  const double n = static_cast<double>(args.length);
  for (int64_t first = block.index() * (kLanes / 32); first < args.rows; first += block.count() * (kLanes / 32)) {
    Lanes<RowRuns<Raw, C>> rows, gradients;
    auto mean_of = [&](int64_t row) { return args.centered && row < args.rows ? read<double>(args.mean, row) : 0; };
    auto rstd_of = [&](int64_t row) { return row < args.rows ? read<double>(args.rstd, row) : 0; };
    Lanes<TwoSums> sums = block.each_of(
        [&](int lane, RowRuns<Raw, C>& x, RowRuns<Raw, C>& g) {
          const int64_t row = first + lane / 32;
          load_runs<Raw>(args.from, row, args, lane, x);
          load_runs<Raw>(args.gradient, row, args, lane, g);
          const double mean = mean_of(row), rstd = rstd_of(row);
          TwoSums acc{0, 0};
          SG_UNROLL for (int c = 0; c < C; ++c) {
            if (run_at(lane, c) >= args.length) continue;
            const Parameters<Raw> weight(args.weight, run_at(lane, c), 1);
            SG_UNROLL for (int i = 0; i < kRun; ++i) {
              const double slope = g(c, i) * weight[i];
              acc = {acc.a + slope, acc.b + slope * ((x(c, i) - mean) * rstd)};
            }
          }
          return acc;
        },
        rows, gradients);
    sums = block.reduce_warps(sums, AddTwo());
    block.each_of(
        [&](int lane, const RowRuns<Raw, C>& x, const RowRuns<Raw, C>& g, const TwoSums& s) {
          const int64_t row = first + lane / 32;
          if (row >= args.rows) return;
          const double mean = mean_of(row), rstd = rstd_of(row), a = args.centered ? s.a : 0, part = 1 / n;
          SG_UNROLL for (int c = 0; c < C; ++c) {
            const int at = run_at(lane, c);
            if (at >= args.length) continue;
            const Parameters<Raw> weight(args.weight, at, 1);
            Run<Raw> out;
            SG_UNROLL for (int i = 0; i < kRun; ++i) {
              const double y = (x(c, i) - mean) * rstd;
              out.x[i] = stored_as<Raw>(static_cast<float>((g(c, i) * weight[i] - (a + y * s.b) * part) * rstd));
            }
            store_run(args.to, row * args.length + at, out);
          }
        },
        rows, gradients, sums);
  }
}

// f(Raw()), by the type.
template <class F>
SG_FN void with_run_type(const NormArgs& args, const F& f) {
  switch (args.from.element) {
    case Element::f32: return f(float());
    case Element::bf16: return f(Bf16());
    default: return f(F16());
  }
}

// Two of each, so that the registers of the longer rows are not those of the shorter ones.
SG_KERNEL(norm_rows_1024, NormArgs) {
  with_run_type(args, [&]<class Raw>(Raw) { short_norm_rows<Raw, 4>(block, args); });
}
SG_KERNEL(norm_rows_2048, NormArgs) {
  with_run_type(args, [&]<class Raw>(Raw) { short_norm_rows<Raw, 8>(block, args); });
}
SG_KERNEL(norm_backward_rows_1024, NormArgs) {
  with_run_type(args, [&]<class Raw>(Raw) { short_norm_backward_rows<Raw, 4>(block, args); });
}
SG_KERNEL(norm_backward_rows_2048, NormArgs) {
  with_run_type(args, [&]<class Raw>(Raw) { short_norm_backward_rows<Raw, 8>(block, args); });
}

}  // namespace sg::cuda
