// Layer norms of short rows: one warp per row, whose lanes keep 8 adjacent elements at a time in registers. So a row is
// read once, 16 bytes per lane, and no lane waits for another warp. In double, like norms.h.
//
// REQUIRES  lines of one type (NormArgs), contiguous, aligned to 16 bytes; a length that is a multiple of 8 and at most
//           1024 or 2048
#pragma once

#include "librun/cuda/kernels/norms.h"
#include "librun/cuda/kernels/runs.h"

namespace sg::cuda {

// A lane's part of a row: one run out of every kRun * kWarpLanes elements, as stored in memory.
template <class Raw, int C>
struct RowRuns {
  Run<Raw> run[C];

  SG_FN double operator()(int c, int i) const { return static_cast<double>(value_of(run[c].x[i])); }
};

SG_FN int run_at(int lane, int c) { return (c * kWarpLanes + lane) * kRun; }

template <class Raw>
SG_FN Run<Raw> run_of(const View& v, int64_t at) {
  return load_run(reinterpret_cast<const Raw*>(v.data) + at);
}
template <class Raw, int C>
SG_FN RowRuns<Raw, C> load_runs(const View& v, int64_t row, const NormArgs& args, int lane) {
  RowRuns<Raw, C> out;
  SG_UNROLL for (int c = 0; c < C; ++c) {
    const int at = run_at(lane, c);
    out.run[c] = at < args.length ? run_of<Raw>(v, row * args.length + at) : Run<Raw>{};
  }
  return out;
}
template <class Raw>
SG_FN void put_run(const View& v, int64_t at, const Run<Raw>& run) {
  store_run(reinterpret_cast<Raw*>(v.data) + at, run);
}

// The weights or biases of a run, or `none` if there are none.
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

// f(c, at) for each run of a row that a lane handles.
template <int C, class F>
SG_FN void each_run(const NormArgs& args, int lane, const F& f) {
  SG_UNROLL for (int c = 0; c < C; ++c) {
    const int at = run_at(lane, c);
    if (at < args.length) f(c, at);
  }
}

template <class Raw, int C>
SG_FN void short_norm_row(const Warp& team, const NormArgs& args, int64_t row) {
  using Runs = RowRuns<Raw, C>;
  const double n = static_cast<double>(args.length);
  Warp::Kept<Runs> runs = team.each([&](int lane) { return load_runs<Raw, C>(args.from, row, args, lane); });
  double mean = 0;
  if (args.centered)
    mean = team.reduce(team.each_of(
                           [&](int, const Runs& x) {  // missing elements are 0
                             double sum = 0;
                             SG_UNROLL for (int c = 0; c < C; ++c) SG_UNROLL for (int i = 0; i < kRun; ++i) sum +=
                                 x(c, i);
                             return sum;
                           },
                           runs),
                       Sum()) /
           n;
  const auto spread = team.each_of(
      [&](int lane, const Runs& x) {
        double sum = 0;
        each_run<C>(args, lane, [&](int c, int) {
          SG_UNROLL for (int i = 0; i < kRun; ++i) sum += (x(c, i) - mean) * (x(c, i) - mean);
        });
        return sum;
      },
      runs);
  const double rstd = 1 / ::sqrt(team.reduce(spread, Sum()) / n + args.eps);
  team.each_of(
      [&](int lane, const Runs& x) {
        each_run<C>(args, lane, [&](int c, int at) {
          const Parameters<Raw> weight(args.weight, at, 1), bias(args.bias, at, 0);
          Run<Raw> out;
          SG_UNROLL for (int i = 0; i < kRun; ++i) {
            const double y = (x(c, i) - mean) * rstd * weight[i] + bias[i];
            out.x[i] = stored_as<Raw>(static_cast<float>(y));
          }
          put_run(args.to, row * args.length + at, out);
        });
        if (lane == 0 && args.mean.data) write<double>(args.mean, row, mean);
        if (lane == 0 && args.rstd.data) write<double>(args.rstd, row, rstd);
      },
      runs);
}

template <class Raw, int C>
SG_FN void short_norm_backward_row(const Warp& team, const NormArgs& args, int64_t row) {
  using Runs = RowRuns<Raw, C>;
  const double mean = args.centered ? read<double>(args.mean, row) : 0, rstd = read<double>(args.rstd, row);
  Warp::Kept<Runs> runs = team.each([&](int lane) { return load_runs<Raw, C>(args.from, row, args, lane); });
  Warp::Kept<Runs> slopes = team.each([&](int lane) { return load_runs<Raw, C>(args.gradient, row, args, lane); });
  const auto part = team.each_of(
      [&](int lane, const Runs& x, const Runs& g) {
        TwoSums sum{0, 0};
        each_run<C>(args, lane, [&](int c, int at) {
          const Parameters<Raw> weight(args.weight, at, 1);
          SG_UNROLL for (int i = 0; i < kRun; ++i) {
            const double slope = g(c, i) * weight[i];
            sum = {sum.a + slope, sum.b + slope * ((x(c, i) - mean) * rstd)};
          }
        });
        return sum;
      },
      runs, slopes);
  const TwoSums sums = team.reduce(part, AddTwo());
  const double n = static_cast<double>(args.length), a = args.centered ? sums.a / n : 0, b = sums.b / n;
  team.each_of(
      [&](int lane, const Runs& x, const Runs& g) {
        each_run<C>(args, lane, [&](int c, int at) {
          const Parameters<Raw> weight(args.weight, at, 1);
          Run<Raw> out;
          SG_UNROLL for (int i = 0; i < kRun; ++i) {
            const double y = (g(c, i) * weight[i] - (a + (x(c, i) - mean) * rstd * b)) * rstd;
            out.x[i] = stored_as<Raw>(static_cast<float>(y));
          }
          put_run(args.to, row * args.length + at, out);
        });
      },
      runs, slopes);
}

// f.template operator()<Raw>(team, row) for all rows, by the type.
template <class F>
SG_FN void for_short_rows(const Block& block, const NormArgs& args, const F& f) {
  for_warps(block, [&](const Warp& team) {
    for (int64_t row = team.index(); row < args.rows; row += team.count()) switch (args.from.element) {
        case Element::f32: f.template operator()<float>(team, row); break;
        case Element::bf16: f.template operator()<Bf16>(team, row); break;
        default: f.template operator()<F16>(team, row);
      }
  });
}

// Two versions of each kernel, so that short rows do not pay for the registers that longer rows need.
SG_KERNEL(norm_rows_1024, NormArgs) {
  for_short_rows(block, args,
                 [&]<class Raw>(const Warp& team, int64_t row) { short_norm_row<Raw, 4>(team, args, row); });
}
SG_KERNEL(norm_rows_2048, NormArgs) {
  for_short_rows(block, args,
                 [&]<class Raw>(const Warp& team, int64_t row) { short_norm_row<Raw, 8>(team, args, row); });
}
SG_KERNEL(norm_backward_rows_1024, NormArgs) {
  for_short_rows(block, args,
                 [&]<class Raw>(const Warp& team, int64_t row) { short_norm_backward_row<Raw, 4>(team, args, row); });
}
SG_KERNEL(norm_backward_rows_2048, NormArgs) {
  for_short_rows(block, args,
                 [&]<class Raw>(const Warp& team, int64_t row) { short_norm_backward_row<Raw, 8>(team, args, row); });
}

}  // namespace sg::cuda
