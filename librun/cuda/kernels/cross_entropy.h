// Cross entropy of classes without storing log-probabilities: one block per row.
#pragma once

#include "librun/cuda/kernels/instructions.h"
#include "librun/cuda/kernels/loss.h"
#include "librun/cuda/kernels/norms.h"
#include "librun/cuda/kernels/runs.h"

namespace sg::cuda {

struct CrossEntropyArgs {
  LossArgs loss;     // backward: its gradient, total and weight
  View to, from;     // rows of scores, and their gradients
  double* log_sums;  // [rows]
  double* picked;    // forward: the log-probability of each row's class
};

// A log-probability, rounded as storing it would.
template <class C>
SG_FN C log_probability(C x, double logs) {
  return static_cast<C>(static_cast<double>(x) - logs);
}

template <class From>
SG_FN void note_row(const Block& block, const CrossEntropyArgs& args, int64_t row, const Line<From>& from,
                    double logs) {
  block.each([&](int lane) {
    if (lane != 0) return;
    const int64_t label = class_of(args.loss, row);
    args.log_sums[row] = logs;
    args.picked[row] = label < 0 ? 0 : static_cast<double>(log_probability(from.number(label), logs));
  });
}

template <class From>
SG_FN void cross_entropy_row(const Block& block, const CrossEntropyArgs& args, int64_t row) {
  const Line<From> from = row_line<From>(args.from, row);
  note_row(block, args, row, from, log_sum(args.from, exp_sum(block, from, args.loss.classes)));
}

SG_KERNEL(cross_entropy_rows, CrossEntropyArgs) {
  with_type(args.from.element, [&]<class From>(From) {
    for (int64_t row = block.index(); row < args.loss.count; row += block.count())
      cross_entropy_row<From>(block, args, row);
  });
}

// Each number is read before it is overwritten: the gradient may share the memory of the scores.
template <class To, class From>
SG_FN void cross_entropy_backward_row(const Block& block, const CrossEntropyArgs& args, int64_t row) {
  const Line<To> to = row_line<To>(args.to, row);
  const Line<From> from = row_line<From>(args.from, row);
  block.each([&](int lane) {
    using C = typename Line<From>::Number;
    const int64_t label = class_of(args.loss, row);
    const double g = label < 0 ? 0 : static_cast<C>(class_slope(args.loss, row, label)), logs = args.log_sums[row];
    for (int64_t i = lane; i < args.loss.classes; i += kLanes)
      to.put(i, (i == label ? g : 0) - static_cast<double>(math::exp_float(log_probability(from.number(i), logs))) * g);
  });
}

SG_KERNEL(cross_entropy_backward_rows, CrossEntropyArgs) {
  with_types(args.to.element, args.from.element, [&]<class To, class From>(To, From) {
    for (int64_t row = block.index(); row < args.loss.count; row += block.count())
      cross_entropy_backward_row<To, From>(block, args, row);
  });
}

// --- by runs: long rows of bf16 or f16, of which a lane takes 8 adjacent elements at a time ---
//
// Results rounded to these types do not need an exponential accurate to the last bit of a float: exp2_near makes memory
// the bottleneck. REQUIRES: rows and their gradients of one such type, contiguous, aligned to 16 bytes

// x - logs, for a log-sum that a float would round.
struct FromSum {
  float most, rest;
  SG_FN explicit FromSum(double logs)
      : most(static_cast<float>(logs)), rest(static_cast<float>(logs - static_cast<double>(most))) {}
  SG_FN float probability(float x) const { return exp2_near(((x - most) - rest) * kLog2E); }
};

// f(i, run) for the runs of a row that a lane processes, and f(i, raw) for single elements after the last run.
template <class Raw, class F>
SG_FN void each_run_of(const Raw* row, int64_t length, int lane, const F& f) {
  const int64_t runs = length / kRun;
  for (int64_t i = lane; i < runs; i += kLanes) f(i * kRun, load_run(row + i * kRun));
  if (const int64_t i = runs * kRun + lane; i < length) f(i, row[i]);
}

template <class Raw>
SG_FN ExpSum<float> exp_sum_by_runs(const Block& block, const Raw* row, int64_t length) {
  auto part = block.each([&](int lane) {
    ExpSum<float> acc{lowest<float>(), 0};
    auto rise = [&](float most) {
      if (most != acc.most) acc.sum *= rescaled(acc.most, most), acc.most = most;
    };
    auto take = [&]<class T>(int64_t, const T& given) {
      if constexpr (std::is_same_v<T, Raw>) {
        const float x = value_of(given);
        rise(acc.most < x ? x : acc.most);
        acc.sum += static_cast<double>(exp2_near((x - acc.most) * kLog2E));
      } else {
        float x[kRun], most = acc.most, sum = 0;
        SG_UNROLL for (int k = 0; k < kRun; ++k) {
          x[k] = value_of(given.x[k]);
          most = most < x[k] ? x[k] : most;
        }
        rise(most);
        SG_UNROLL for (int k = 0; k < kRun; ++k) sum += exp2_near((x[k] - most) * kLog2E);
        acc.sum += static_cast<double>(sum);
      }
    };
    each_run_of(row, length, lane, take);
    return acc;
  });
  return block.reduce(part, MergeExpSums());
}

template <class Raw>
SG_FN void cross_entropy_row_by_runs(const Block& block, const CrossEntropyArgs& args, int64_t row) {
  const Line<Raw> from = row_line<Raw>(args.from, row);
  const double logs = log_sum(args.from, exp_sum_by_runs(block, from.first, args.loss.classes));
  note_row(block, args, row, from, logs);
}

template <class Raw>
SG_FN void cross_entropy_backward_row_by_runs(const Block& block, const CrossEntropyArgs& args, int64_t row) {
  Raw* const to = row_line<Raw>(args.to, row).first;
  const Raw* const from = row_line<Raw>(args.from, row).first;
  block.each([&](int lane) {
    const int64_t label = class_of(args.loss, row);
    const float g = label < 0 ? 0.0f : static_cast<float>(class_slope(args.loss, row, label));
    const FromSum sum(args.log_sums[row]);
    auto slope = [&](float x, bool is_label) { return (is_label ? g : 0.0f) - sum.probability(x) * g; };
    each_run_of(from, args.loss.classes, lane, [&]<class T>(int64_t i, const T& given) {
      if constexpr (std::is_same_v<T, Raw>) {
        to[i] = stored_as<Raw>(slope(value_of(given), i == label));
      } else {
        const int at = label - i < 0 || label - i >= kRun ? -1 : static_cast<int>(label - i);
        T out;
        SG_UNROLL for (int k = 0; k < kRun; ++k) out.x[k] = stored_as<Raw>(slope(value_of(given.x[k]), k == at));
        store_run(to + i, out);
      }
    });
  });
}

// f.template operator()<Raw>(row) for all rows, by the type.
template <class F>
SG_FN void for_rows_of_halves(const Block& block, const CrossEntropyArgs& args, const F& f) {
  for (int64_t row = block.index(); row < args.loss.count; row += block.count()) {
    if (args.from.element == Element::bf16) f.template operator()<Bf16>(row);
    else f.template operator()<F16>(row);
  }
}

SG_KERNEL(cross_entropy_rows_by_runs, CrossEntropyArgs) {
  for_rows_of_halves(block, args, [&]<class Raw>(int64_t row) { cross_entropy_row_by_runs<Raw>(block, args, row); });
}
SG_KERNEL(cross_entropy_backward_rows_by_runs, CrossEntropyArgs) {
  for_rows_of_halves(block, args,
                     [&]<class Raw>(int64_t row) { cross_entropy_backward_row_by_runs<Raw>(block, args, row); });
}

}  // namespace sg::cuda
