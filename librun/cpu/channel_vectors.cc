#include "librun/cpu/channel_vectors.h"

#include <type_traits>

#include "librun/cpu/isa.h"
#include "librun/cpu/rows.h"
#include "librun/cpu/side_lines.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

// --- sums: tasks of kSideLines channels of a run ---

template <class T>
SG_INLINE double wide(T x) {
  return static_cast<double>(static_cast<Compute<T>>(x));
}

// What is added up; `center` begins at the channels' first.
template <class T>
struct Sum {
  const T* x;
  SG_INLINE Sum at(int64_t offset, int64_t) const { return {x + offset}; }
  SG_INLINE double operator()(int64_t i, int64_t) const { return wide(x[i]); }
};

template <class T>
struct SquareDistance {
  const T* x;
  const double* center;
  SG_INLINE SquareDistance at(int64_t offset, int64_t c) const { return {x + offset, center + c}; }
  SG_INLINE double operator()(int64_t i, int64_t l) const {
    const double d = wide(x[i]) - center[l];
    return d * d;
  }
};

template <class T>
struct CenteredDot {
  const T *grad, *x;
  const double* center;
  SG_INLINE CenteredDot at(int64_t offset, int64_t c) const { return {grad + offset, x + offset, center + c}; }
  SG_INLINE double operator()(int64_t i, int64_t l) const { return wide(grad[i]) * (wide(x[i]) - center[l]); }
};

template <class Term>
SG_CLONES void sum_channels(const ChannelVectors& v, const Term& term, int64_t count, double* sums) {
  const int64_t step = v.channels;
  const auto value = [=](int64_t i, int64_t l) { return term(i * step + l, l); };
  if (count == kSideLines) sum_side(v.length, value, sums);
  else sum_side(v.length, value, sums, count);
}

// term_of(run): the term at the first channel of a run.
template <class TermOf>
void sum_runs(KernelCall& call, const ChannelVectors& v, double* sums, const TermOf& term_of) {
  const int64_t pieces = (v.channels + kSideLines - 1) / kSideLines;
  for_rows(call, v.runs * pieces, v.length * kSideLines, [&](int64_t task, int) {
    const int64_t run = task / pieces, first = task % pieces * kSideLines;
    sum_channels(v, term_of(run).at(first, first), std::min(kSideLines, v.channels - first),
                 sums + run * v.channels + first);
  });
}

// --- element by element: tasks of some positions of a run ---

struct Positions {
  int64_t run, first, count;
};

template <class Fn>  // fn(positions)
void for_pieces(KernelCall& call, const ChannelVectors& v, const Fn& fn) {
  constexpr int64_t kPositions = 64;
  const int64_t pieces = (v.length + kPositions - 1) / kPositions;
  for_rows(call, v.runs * pieces, kPositions * v.channels, [&](int64_t task, int) {
    const int64_t first = task % pieces * kPositions;
    fn(Positions{task / pieces, first, std::min(kPositions, v.length - first)});
  });
}

const double* of_run(ByChannel by, int64_t run) { return by.data + run * by.run_step; }

template <class T>
SG_CLONES void normalize_positions(const Positions& at, int64_t channels, const T* x, const ChannelNorm& by, T* to) {
  const double *mean = by.mean.data, *rstd = by.rstd.data, *scale = by.scale.data, *shift = by.shift.data;
  for (int64_t i = 0; i < at.count; ++i, x += channels, to += channels)
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c)
      to[c] = static_cast<T>(static_cast<Compute<T>>((wide(x[c]) - mean[c]) * rstd[c] * scale[c] + shift[c]));
}

template <class T>
SG_CLONES void gradient_positions(const Positions& at, int64_t channels, const T* grad, const T* x,
                                  const ChannelSlopes& by, T* to) {
  const double *mean = by.mean.data, *rstd = by.rstd.data, *scale = by.scale.data, *shift = by.shift.data,
               *slope = by.slope.data;
  for (int64_t i = 0; i < at.count; ++i, grad += channels, x += channels, to += channels)
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const double centered = wide(x[c]) - mean[c];
      to[c] = static_cast<T>(
          static_cast<Compute<T>>(rstd[c] * (wide(grad[c]) * scale[c] - shift[c] - centered * slope[c])));
    }
}

}  // namespace

void channel_sums(KernelCall& call, const ChannelVectors& v, const Tensor& x, double* sums) {
  visit_floating(x.dtype, [&]<class T>() {
    sum_runs(call, v, sums, [&](int64_t run) { return Sum<T>{x.as<T>() + run * v.length * v.channels}; });
  });
}

void channel_square_distances(KernelCall& call, const ChannelVectors& v, const Tensor& x, ByChannel center,
                              double* sums) {
  visit_floating(x.dtype, [&]<class T>() {
    sum_runs(call, v, sums, [&](int64_t run) {
      return SquareDistance<T>{x.as<T>() + run * v.length * v.channels, of_run(center, run)};
    });
  });
}

void channel_centered_dots(KernelCall& call, const ChannelVectors& v, const Tensor& grad, const Tensor& x,
                           ByChannel center, double* sums) {
  visit_floating(x.dtype, [&]<class T>() {
    sum_runs(call, v, sums, [&](int64_t run) {
      const int64_t at = run * v.length * v.channels;
      return CenteredDot<T>{grad.as<T>() + at, x.as<T>() + at, of_run(center, run)};
    });
  });
}

void normalize_channels(KernelCall& call, const ChannelVectors& v, const Tensor& x, const ChannelNorm& by,
                        const Tensor& to) {
  visit_floating(x.dtype, [&]<class T>() {
    for_pieces(call, v, [&](const Positions& p) {
      ChannelNorm own = by;
      for (ByChannel* part : {&own.mean, &own.rstd, &own.scale, &own.shift}) part->data = of_run(*part, p.run);
      const int64_t at = (p.run * v.length + p.first) * v.channels;
      normalize_positions(p, v.channels, x.as<T>() + at, own, to.as<T>() + at);
    });
  });
}

void channel_input_gradients(KernelCall& call, const ChannelVectors& v, const Tensor& grad, const Tensor& x,
                             const ChannelSlopes& by, const Tensor& to) {
  visit_floating(x.dtype, [&]<class T>() {
    for_pieces(call, v, [&](const Positions& p) {
      ChannelSlopes own = by;
      for (ByChannel* part : {&own.mean, &own.rstd, &own.scale, &own.shift, &own.slope})
        part->data = of_run(*part, p.run);
      const int64_t at = (p.run * v.length + p.first) * v.channels;
      gradient_positions(p, v.channels, grad.as<T>() + at, x.as<T>() + at, own, to.as<T>() + at);
    });
  });
}

}  // namespace sg::cpu
