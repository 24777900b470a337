// The building blocks of generated kernels that end in a reduction (generate_reduction.h): the elements of its rows are
// values of a chain, which are not in memory, or not yet.
#pragma once

#include "librun/cuda/kernels/generated.h"
#include "librun/cuda/kernels/sum_parts.h"

namespace sg::cuda {

struct ReducedChainArgs : ChainArgs {
  ReduceTo to;
  Parts parts;
};

// A value as an element of a row.
template <class T>
struct Made {
  T x;
  SG_FN double re() const { return static_cast<double>(x); }
  SG_FN double im() const { return 0; }
  SG_FN int64_t whole() const { return whole_of(x); }
  SG_FN bool is_true() const { return x != 0; }
};
template <class T>
struct Made<Cx<T>> {
  Cx<T> x;
  SG_FN double re() const { return static_cast<double>(x.re); }
  SG_FN double im() const { return static_cast<double>(x.im); }
  SG_FN int64_t whole() const { return whole_of(x.re); }
  SG_FN bool is_true() const { return x.re != 0 || x.im != 0; }
};
template <class T>
SG_FN Made<T> made(T x) {
  return {x};
}

// early(row, i) and last(row, i) return the element; the latter also stores values of the chain needed elsewhere.
template <class Team, class Early, class Last>
SG_FN void reduce_made_row(const Team& team, const ReduceHow& how, const ReduceTo& to, int64_t row, const Early& early,
                           const Last& last) {
  reduce_row(
      team, how, to, row, [&](int64_t i) { return early(row, i); }, [&](int64_t i) { return last(row, i); });
}
template <class Team, class Early, class Last>
SG_FN void reduce_made_rows(const Team& team, const ReducedChainArgs& args, const ReduceHow& how, const Early& early,
                            const Last& last) {
  for (int64_t row = team.index(); row < args.to.to.count; row += team.count())
    reduce_made_row(team, how, args.to, row, early, last);
}
template <class Last>
SG_FN void sum_made_run(const Block& block, const ReducedChainArgs& args, const ReduceHow& how, const Last& last) {
  sum_run(block, args.parts, [&](int64_t row, int64_t i) { return TwoSums{partial_of(how, last(row, i)).re, 0}; });
}
template <class Last>
SG_FN void sum_made_tile(const Block& block, const ReducedChainArgs& args, const ReduceHow& how, const Last& last) {
  SG_SHARED(TwoSums, held, kLanes);
  sum_tile(block, args.parts, held, [&](int64_t row, int64_t i) {
    return TwoSums{partial_of(how, last(row, i)).re, 0};
  });
}

// --- several stages over the same rows ---

inline constexpr int kMostReductions = 4;

struct RowStagesArgs : ChainArgs {
  int64_t rows = 0;
  ReduceTo to[kMostReductions];
};

// One number per row: lane 0 has written the values it depends on.
template <class Team, class F>
SG_FN void by_first_lane(const Team& team, int64_t row, const F& f) {
  team.each([&](int lane) {
    if (lane == 0) f(row, 0);
  });
}
template <class Team, class F>
SG_FN void by_each_lane(const Team& team, int64_t row, int64_t count, const F& f) {
  team.each([&](int lane) {
    for (int64_t i = lane; i < count; i += Team::kWidth) f(row, i);
  });
}

}  // namespace sg::cuda
