// Reductions over any axes of a strided tensor, in an order that the shape and strides alone decide.
//
// Axes are taken in memory order. If the innermost is reduced, runs along it are reduced in interleaved lanes; if it is
// kept, tiles of neighbouring outputs are reduced side by side: a sum over the first axis is as fast as over the last.
// Either way the reduced elements are cut into blocks of fixed size, whose partial results are merged pairwise.
//
// An Op says what is done:
//     using Acc      what is accumulated          Acc start() const
//     Acc add(Acc, value, double center) const    value in the type that is computed with
//     Acc merge(Acc, Acc) const
#pragma once

#include <vector>

#include "librun/cpu/isa.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/lanes.h"
#include "librun/element.h"

namespace sg::cpu {

struct ReducePlan {
  struct Axis {
    int64_t size, in, out;
  };
  std::vector<Axis> kept, reduced;      // outermost first, neighbours joined, at least one each
  int64_t outputs = 1, count = 1;       // kept and reduced elements
  bool rows = false;                    // the innermost axis is reduced
  int64_t blocks = 1, per_block = 1;    // of runs along the innermost reduced axis, or of parts of one
};

// `axes` empty: all. `out` has the kept axes, with the reduced ones as 1 or without them.
ReducePlan plan_reduction(const Tensor& self, const Tensor& out, const std::vector<int>& axes);

// Offsets of the positions over `axes`, the innermost left out.
struct OuterOffset {
  int64_t in = 0, out = 0;
};
OuterOffset outer_offset(const std::vector<ReducePlan::Axis>& axes, int64_t position);

inline constexpr int64_t kReduceTile = 256;         // outputs that are reduced side by side
inline constexpr int64_t kReduceRun = 1 << 14;      // elements of a run in one block
inline constexpr int64_t kReduceColumnRows = 128;   // positions in one block of columns

template <class Op, class T>
SG_CLONES typename Op::Acc reduce_run(const Op& op, const T* x, int64_t n, int64_t stride, double center) {
  using Acc = typename Op::Acc;
  Acc total = op.start();
  auto value = [=](int64_t i) { return static_cast<Compute<T>>(x[i * stride]); };
  if (n < 2 * kLanes) {
    for (int64_t i = 0; i < n; ++i) total = op.add(total, value(i), center);
    return total;
  }
  for (int64_t block = 0; block < n; block += kBlock) {
    Acc lane[kLanes];
    for (Acc& l : lane) l = op.start();
    int64_t end = std::min(n, block + kBlock), i = block;
    if (stride == 1) {
      for (; i + kLanes <= end; i += kLanes)
        for (int l = 0; l < kLanes; ++l) lane[l] = op.add(lane[l], static_cast<Compute<T>>(x[i + l]), center);
    }
    for (int l = 0; i < end; ++i, l = (l + 1) % kLanes) lane[l] = op.add(lane[l], value(i), center);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lane[l] = op.merge(lane[l], lane[l + width]);
    total = op.merge(total, lane[0]);
  }
  return total;
}

// acc[j] takes up x[r * row_stride + j * stride] for every r < rows; width is at most kReduceTile.
template <class Op, class T>
SG_CLONES void reduce_columns(const Op& op, const T* x, int64_t rows, int64_t row_stride, int64_t width, int64_t stride,
                              const double* centers, typename Op::Acc* acc) {
  using Acc = typename Op::Acc;
  constexpr int64_t kRowsTogether = 32;
  auto center = [=](int64_t j) { return centers ? centers[j] : 0.0; };
  for (int64_t first = 0; first < rows; first += kRowsTogether) {
    Acc part[kReduceTile];
    for (int64_t j = 0; j < width; ++j) part[j] = op.start();
    int64_t end = std::min(rows, first + kRowsTogether), r = first;
    for (; stride == 1 && !centers && r + 4 <= end; r += 4) {
      const T *a = x + r * row_stride, *b = a + row_stride, *c = b + row_stride, *d = c + row_stride;
      for (int64_t j = 0; j < width; ++j) {
        Acc sum = op.add(part[j], static_cast<Compute<T>>(a[j]), 0.0);
        sum = op.add(sum, static_cast<Compute<T>>(b[j]), 0.0);
        sum = op.add(sum, static_cast<Compute<T>>(c[j]), 0.0);
        part[j] = op.add(sum, static_cast<Compute<T>>(d[j]), 0.0);
      }
    }
    for (; r < end; ++r)
      for (int64_t j = 0; j < width; ++j)
        part[j] = op.add(part[j], static_cast<Compute<T>>(x[r * row_stride + j * stride]), center(j));
    for (int64_t j = 0; j < width; ++j) acc[j] = op.merge(acc[j], part[j]);
  }
}

// One piece of work: the reduced positions of one block, for the outputs [first, first + width) of one line of outputs.
template <class Op, class T>
void reduce_block(const Op& op, const T* line, const ReducePlan& plan, int64_t block, int64_t first, int64_t width,
                  const double* centers, typename Op::Acc* acc) {
  const ReducePlan::Axis& run = plan.reduced.back();
  const ReducePlan::Axis& kept = plan.kept.back();
  // Positions over the reduced axes, outer times inner, from `begin` to `end`.
  int64_t begin = block * plan.per_block, end = std::min(plan.count, begin + plan.per_block);
  while (begin < end) {
    int64_t inner = begin % run.size, n = std::min(run.size - inner, end - begin);
    const T* x = line + outer_offset(plan.reduced, begin / run.size).in + inner * run.in;
    if (plan.rows) {
      for (int64_t j = 0; j < width; ++j) {
        double center = centers ? centers[j] : 0.0;
        acc[j] = op.merge(acc[j], reduce_run(op, x + (first + j) * kept.in, n, run.in, center));
      }
    } else {
      reduce_columns(op, x + first * kept.in, n, run.in, width, kept.in, centers, acc);
    }
    begin += n;
  }
}

// Stores a reduced value as an element: rounded once.
template <class Acc>
using Put = void (*)(std::byte* data, int64_t offset, Acc value);
template <class Acc>
Put<Acc> put_as(DType dtype);           // Acc: double, std::complex<double>, int64_t, uint64_t (wrapped integers)

// Calls fn.template operator()<T>(tensor) with `self`, as it lies or converted to a wider type of its class.
template <class Fn>
void visit_reducible(KernelCall& call, const Tensor& self, const Fn& fn) {
  switch (self.dtype) {
    case DType::f64: return fn.template operator()<double>(self);
    case DType::f32: return fn.template operator()<float>(self);
    case DType::f16: return fn.template operator()<F16>(self);
    case DType::bf16: return fn.template operator()<BF16>(self);
    case DType::boolean: return fn.template operator()<bool>(self);
    case DType::c64: case DType::c128: return fn.template operator()<C128>(contiguous_as(call, self, DType::c128));
    default: return fn.template operator()<int64_t>(contiguous_as(call, self, DType::i64));
  }
}

// Calls store(acc, output number, out offset) for every output. `centers`: one a output, or null.
template <class T, class Op, class Store>
void reduce(KernelCall& call, const ReducePlan& plan, const Tensor& self, const Op& op, const double* centers, const Store& store) {
  using Acc = typename Op::Acc;
  if (plan.outputs == 0) return;
  const ReducePlan::Axis& kept = plan.kept.back();
  // Outputs come in lines along the innermost kept axis, lines in tiles.
  int64_t tile = plan.rows ? std::clamp<int64_t>(kPieceElements / std::max<int64_t>(plan.count, 1), 1, kReduceTile) : kReduceTile;
  int64_t tiles = (kept.size + tile - 1) / tile, lines = plan.outputs / kept.size, blocks = plan.blocks;
  Acc* partial = blocks > 1 ? call.scratch().template take<Acc>(blocks * plan.outputs) : nullptr;
  auto each_tile = [&](int64_t unit, const auto& fn) {   // fn(line, first, width, output)
    int64_t line = unit / tiles, first = unit % tiles * tile;
    fn(line, first, std::min(tile, kept.size - first), line * kept.size + first);
  };
  auto finish = [&](int64_t line, int64_t first, int64_t width, int64_t output, const Acc* acc) {
    int64_t out = outer_offset(plan.kept, line).out + first * kept.out;
    for (int64_t j = 0; j < width; ++j) store(acc[j], output + j, out + j * kept.out);
  };
  int64_t work = std::max<int64_t>(1, std::min(tile, kept.size) * std::min(plan.per_block, plan.count));
  int64_t grain = std::max<int64_t>(1, kPieceElements / work);
  call.team().parallel_for(lines * tiles * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      each_tile(unit / blocks, [&](int64_t line, int64_t first, int64_t width, int64_t output) {
        Acc held[kReduceTile];
        Acc* acc = partial ? partial + unit % blocks * plan.outputs + output : held;
        for (int64_t j = 0; j < width; ++j) acc[j] = op.start();
        const T* x = self.as<T>() + outer_offset(plan.kept, line).in;
        reduce_block(op, x, plan, unit % blocks, first, width, centers ? centers + output : nullptr, acc);
        if (!partial) finish(line, first, width, output, acc);
      });
    }
  });
  if (!partial) return;
  call.team().parallel_for(lines * tiles, std::max<int64_t>(1, kPieceElements / (tile * blocks)), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      each_tile(unit, [&](int64_t line, int64_t first, int64_t width, int64_t output) {
        for (int64_t step = 1; step < blocks; step *= 2) {
          for (int64_t b = 0; b + step < blocks; b += 2 * step) {
            Acc *into = partial + b * plan.outputs + output, *from = partial + (b + step) * plan.outputs + output;
            for (int64_t j = 0; j < width; ++j) into[j] = op.merge(into[j], from[j]);
          }
        }
        finish(line, first, width, output, partial + output);
      });
    }
  });
}

}  // namespace sg::cpu
