// Attention with scores in memory: for some heads of a batch entry at a time, with all or a run of their queries.
#pragma once

#include "librun/cpu/attention.h"

namespace sg::cuda {

// Heads [first, first + count) of one batch entry, and queries [row, row + rows) of each.
struct Heads {
  int64_t batch = 0, first = 0, count = 0;
  int64_t row = 0, rows = 0;
};

// [batch or 1, heads, ...] -> [count, ...].
Tensor heads_of(const Tensor& t, int64_t batch, int64_t first, int64_t count);
// [batch or 1, heads, queries, ...] -> [count, rows, ...]. None stays none.
Tensor part_of(const Tensor& t, const Heads& h);

// to [count, rows, .] = alpha * x [count, rows, .] @ the key heads of `kept`, [batch or 1, key heads, ., .].
Status multiply_shared(KernelCall& call, const cpu::Attention& a, const Heads& h, const Tensor& to, const Tensor& x,
                       const Tensor& kept, double alpha = 1);
// Accumulates into what key heads share, [batch or 1, key heads, ., .]: sum += alpha * x^T [count, ., rows] @ y [count,
// rows, .].
Status add_to_shared(KernelCall& call, const cpu::Attention& a, const Heads& h, const Tensor& sum, const Tensor& x,
                     const Tensor& y, double alpha = 1);

}  // namespace sg::cuda
