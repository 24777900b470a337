#include "librun/cpu/pool_averages.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "librun/cpu/isa.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

using work::Span;
using work::Window;

// The windows along the last axis.
struct Lines {
  const Window& w;
  const double* share;  // by window: its factor of the divisor; 0 for an empty window

  // The windows that have an element at step `k`: the first, and one past the last.
  SG_INLINE int64_t first(int64_t k) const {
    const int64_t before = w.padding[2] - k * w.dilation[2];
    return before > 0 ? (before + w.stride[2] - 1) / w.stride[2] : 0;
  }
  SG_INLINE int64_t end(int64_t k) const {
    const int64_t room = w.in[2] + w.padding[2] - k * w.dilation[2];
    return room > 0 ? std::min(w.out[2], (room + w.stride[2] - 1) / w.stride[2]) : 0;
  }
  SG_INLINE int64_t place(int64_t k, int64_t window) const {
    return window * w.stride[2] - w.padding[2] + k * w.dilation[2];
  }
};

int64_t count_of(const Span& s, bool padded) { return padded ? s.padded : s.end - s.from; }

// Makes the common steps 1 and 2 compile-time constants.
template <class Fn>
SG_INLINE void with_step(int64_t step, const Fn& fn) {
  if (step == 1) fn(std::integral_constant<int64_t, 1>{});
  else if (step == 2) fn(std::integral_constant<int64_t, 2>{});
  else fn(step);
}

// Calls fn(row of the plane) for the rows within the windows at (d, i).
template <class Fn>
SG_INLINE void for_lines(const Window& w, const Span& deep, const Span& high, const Fn& fn) {
  for (int64_t d = deep.from; d < deep.end; d += deep.step)
    for (int64_t r = high.from; r < high.end; r += high.step) fn((d * w.in[1] + r) * w.in[2]);
}

SG_CLONES void average_row(const Lines& lines, const Span& deep, const Span& high, double rows, const double* from,
                           double* to) {
  const Window& w = lines.w;
  for (int64_t j = 0; j < w.out[2]; ++j) to[j] = 0;
  for_lines(w, deep, high, [&](int64_t row) {
    for (int64_t k = 0; k < w.kernel[2]; ++k) {
      const int64_t first = lines.first(k), count = lines.end(k) - first;
      const double* line = from + row + lines.place(k, first);
      with_step(w.stride[2], [&](auto step) {
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) to[first + j] += line[j * step];
      });
    }
  });
  for (int64_t j = 0; j < w.out[2]; ++j) {
    const double by = rows * lines.share[j];
    to[j] = by == 0 ? 0 : to[j] / by;
  }
}

// Contributions come in the order of windows: the first window that contains an element has it as its last one.
SG_CLONES void spread_row(const Lines& lines, const Span& deep, const Span& high, double rows, const double* grad,
                          double* shares, double* to) {
  const Window& w = lines.w;
  for (int64_t j = 0; j < w.out[2]; ++j) {
    const double by = rows * lines.share[j];
    shares[j] = by == 0 ? 0 : grad[j] / by;
  }
  for_lines(w, deep, high, [&](int64_t row) {
    for (int64_t k = w.kernel[2] - 1; k >= 0; --k) {
      const int64_t first = lines.first(k), count = lines.end(k) - first;
      double* line = to + row + lines.place(k, first);
      with_step(w.stride[2], [&](auto step) {
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) line[j * step] += shares[first + j];
      });
    }
  });
}

// Calls fn(index of the row of windows, spans of the first two axes, their factor of the divisor).
template <class Fn>
void for_rows_of_windows(const Window& w, const Divisor& by, const Fn& fn) {
  for (int64_t d = 0; d < w.out[0]; ++d)
    for (int64_t i = 0; i < w.out[1]; ++i) {
      const Span deep = w.span(0, d), high = w.span(1, i);
      const bool empty = deep.count() == 0 || high.count() == 0;
      const int64_t rows = by.given ? 1 : count_of(deep, by.padded) * count_of(high, by.padded);
      fn(d * w.out[1] + i, deep, high, empty ? 0.0 : static_cast<double>(rows));
    }
}

std::vector<double> shares_of(const Window& w, const Divisor& by) {
  std::vector<double> shares;
  for (int64_t j = 0; j < w.out[2]; ++j) {
    const Span s = w.span(2, j);
    const int64_t share = by.given ? by.value : count_of(s, by.padded);
    shares.push_back(s.count() == 0 ? 0.0 : static_cast<double>(share));
  }
  return shares;
}

}  // namespace

void average_windows(KernelCall& call, const Window& w, const Divisor& by) {
  const Tensor x = contiguous(call, call.tensor("self"));
  const ResultRows means(call, call.result(), -1);
  const RowReader<double> from(call, x, w.plane_in());
  const RowWriter<double> to(call, means.tensor(), w.plane_out());
  const std::vector<double> shares = shares_of(w, by);
  for_rows(call, w.planes, w.plane_in() + w.plane_out() * w.kernel[0] * w.kernel[1], [&](int64_t plane, int thread) {
    const double* in = from.row(plane, thread);
    double* out = to.row(plane, thread);
    for_rows_of_windows(w, by, [&](int64_t row, const Span& deep, const Span& high, double rows) {
      average_row({w, shares.data()}, deep, high, rows, in, out + row * w.out[2]);
    });
    to.done(plane, thread);
  });
  means.store(call);
}

void spread_averages(KernelCall& call, const Window& w, const Divisor& by) {
  const Tensor grad = contiguous(call, call.tensor("grad_output"));
  const ResultRows sums(call, call.result(), -1);
  const RowReader<double> from(call, grad, w.plane_out());
  const RowWriter<double> to(call, sums.tensor(), w.plane_in());
  const std::vector<double> shares = shares_of(w, by);
  auto* parts = call.scratch().take<double>(w.out[2] * call.team().size());
  for_rows(call, w.planes, w.plane_in() + w.plane_out() * w.kernel[0] * w.kernel[1], [&](int64_t plane, int thread) {
    const double* in = from.row(plane, thread);
    double* out = to.row(plane, thread);
    std::fill_n(out, w.plane_in(), 0.0);
    for_rows_of_windows(w, by, [&](int64_t row, const Span& deep, const Span& high, double rows) {
      spread_row({w, shares.data()}, deep, high, rows, in + row * w.out[2], parts + thread * w.out[2], out);
    });
    to.done(plane, thread);
  });
  sums.store(call);
}

}  // namespace sg::cpu
