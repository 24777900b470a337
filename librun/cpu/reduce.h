// Reductions over any axes of a strided tensor, in an order that only shape and strides determine.
//
// Axes are taken in memory order. If the innermost is reduced, runs along it are reduced in interleaved lanes; if it is
// kept, tiles of adjacent outputs are reduced together: a sum over the first axis is as fast as over the last. In both
// cases the reduced elements are cut into blocks of fixed size, whose partial results are merged pairwise.
//
// An Op defines the reduction:
//     using Acc      the accumulator              Acc start() const
//     Acc add(Acc, value, double center) const    value in the type of the computation
//     Acc merge(Acc, Acc) const
#pragma once

#include <functional>
#include <vector>

#include "librun/cpu/fill.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/lanes.h"
#include "librun/element.h"

namespace sg::cpu {

struct ReducePlan {
  struct Axis {
    int64_t size, in, out;
  };
  std::vector<Axis> kept, reduced;    // outermost first, adjacent ones merged, at least one each
  int64_t outputs = 1, count = 1;     // kept and reduced elements
  bool rows = false;                  // the innermost axis is reduced
  int64_t blocks = 1, per_block = 1;  // of runs along the innermost reduced axis, or of parts of one
};

// The axes that `dim` names; empty if it names none.
std::vector<int> reduced_axes(const KernelCall& call, const Tensor& self);

// `axes` empty: all. `out` has the kept axes, with the reduced ones as 1 or without them.
ReducePlan plan_reduction(const Tensor& self, const Tensor& out, const std::vector<int>& axes);

// Offsets of the positions over `axes`, except the innermost.
struct OuterOffset {
  int64_t in = 0, out = 0;
};
OuterOffset outer_offset(const std::vector<ReducePlan::Axis>& axes, int64_t position);

inline constexpr int64_t kReduceTile = 256;        // outputs reduced together
inline constexpr int64_t kReduceRun = 1 << 14;     // elements of a run in one block
inline constexpr int64_t kReduceColumnRows = 128;  // positions in one block of columns

template <class Op, class T>
SG_CLONES typename Op::Acc reduce_run(const Op& op, const T* x, int64_t n, int64_t stride, double center) {
  using Acc = typename Op::Acc;
  Acc total = op.start();
  auto value = [=](int64_t i) { return static_cast<Compute<T>>(x[i * stride]); };
  if (n < 2 * kSumLanes) {
    for (int64_t i = 0; i < n; ++i) total = op.add(total, value(i), center);
    return total;
  }
  for (int64_t block = 0; block < n; block += kLaneBlock) {
    Acc lane[kSumLanes];
    for (Acc& l : lane) l = op.start();
    int64_t end = std::min(n, block + kLaneBlock), i = block;
    if (stride == 1) {
      for (; i + kSumLanes <= end; i += kSumLanes)
        for (int l = 0; l < kSumLanes; ++l) lane[l] = op.add(lane[l], static_cast<Compute<T>>(x[i + l]), center);
    }
    for (int l = 0; i < end; ++i, l = (l + 1) % kSumLanes) lane[l] = op.add(lane[l], value(i), center);
    for (int width = kSumLanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lane[l] = op.merge(lane[l], lane[l + width]);
    total = op.merge(total, lane[0]);
  }
  return total;
}

// acc[j] accumulates x[r * row_stride + j * stride] for every r < rows; width is at most kReduceTile.
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

// An op on elements of one type, type-erased: one driver serves all.
template <class Acc>
struct Reducer {
  const void* op;
  size_t element_bytes;
  Acc (*start)(const void* op);
  Acc (*merge)(const void* op, Acc a, Acc b);
  Acc (*run)(const void* op, const std::byte* x, int64_t n, int64_t stride, double center);
  void (*columns)(const void* op, const std::byte* x, int64_t rows, int64_t row_stride, int64_t width, int64_t stride,
                  const double* centers, Acc* acc);
};

// Receives `n` adjacent outputs: acc[j] is that of output number output + j, at offset + j * step in the result.
template <class Acc>
using Finish = std::function<void(const Acc* acc, int64_t n, int64_t output, int64_t offset, int64_t step)>;

template <class Acc>  // double, float, int64_t, uint64_t, std::complex<double>
void run_reduction(KernelCall& call, const ReducePlan& plan, const Tensor& self, const Reducer<Acc>& reducer,
                   const double* centers, const Finish<Acc>& finish);

// Stores a reduced value as an element, rounding once.
template <class Acc>
using Put = void (*)(std::byte* data, int64_t offset, Acc value);
template <class Acc>
Put<Acc> put_as(DType dtype);  // Acc: double, std::complex<double>, int64_t, uint64_t (wrapped integers)

// Calls fn.template operator()<T>(tensor) with `self`, as it is or converted to a wider type of its class.
template <class Fn>
void visit_reducible(KernelCall& call, const Tensor& self, const Fn& fn) {
  switch (self.dtype) {
    case DType::f64: return fn.template operator()<double>(self);
    case DType::f32: return fn.template operator()<float>(self);
    case DType::f16: return fn.template operator()<F16>(self);
    case DType::bf16: return fn.template operator()<BF16>(self);
    case DType::boolean: return fn.template operator()<bool>(self);
    case DType::c64:
    case DType::c128: return fn.template operator()<C128>(contiguous_as(call, self, DType::c128));
    default: return fn.template operator()<int64_t>(contiguous_as(call, self, DType::i64));
  }
}

// Calls store(acc, output number, out offset) for every output. `centers`: one per output, or null.
template <class T, class Op, class Store>
void reduce(KernelCall& call, const ReducePlan& plan, const Tensor& self, const Op& op, const double* centers,
            const Store& store) {
  using Acc = typename Op::Acc;
  Reducer<Acc> reducer;
  reducer.op = &op;
  reducer.element_bytes = sizeof(T);
  reducer.start = [](const void* o) { return static_cast<const Op*>(o)->start(); };
  reducer.merge = [](const void* o, Acc a, Acc b) { return static_cast<const Op*>(o)->merge(a, b); };
  reducer.run = [](const void* o, const std::byte* x, int64_t n, int64_t stride, double center) {
    return reduce_run(*static_cast<const Op*>(o), reinterpret_cast<const T*>(x), n, stride, center);
  };
  reducer.columns = [](const void* o, const std::byte* x, int64_t rows, int64_t row_stride, int64_t width,
                       int64_t stride, const double* c, Acc* acc) {
    reduce_columns(*static_cast<const Op*>(o), reinterpret_cast<const T*>(x), rows, row_stride, width, stride, c, acc);
  };
  run_reduction<Acc>(call, plan, self, reducer, centers,
                     [&](const Acc* acc, int64_t n, int64_t output, int64_t offset, int64_t step) {
                       for (int64_t j = 0; j < n; ++j) store(acc[j], output + j, offset + j * step);
                     });
}

}  // namespace sg::cpu
