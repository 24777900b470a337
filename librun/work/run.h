// Runs elementwise work (work.h) on the rank's threads, or on its device.
#pragma once

#include <algorithm>
#include <span>

#include "librun/backend.h"
#include "librun/work/work.h"

namespace sg {

inline bool on_device(const KernelCall& call) { return backend_of(call.context()) != nullptr; }

// `grain`: the number of elements that justifies using another thread.
template <class F>
void for_each(KernelCall& call, int64_t count, int64_t grain, const F& work) {
  if (count <= 0) return;
  if (Backend* backend = backend_of(call.context())) {
    const EachArgs<F> args{count, work};
    return backend->each(F::kName, &args, count);
  }
  call.team().parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(i);
  });
}

// The same over rows of `length` elements: element i is work.at(i / length, i % length); on the CPU without a division.
template <class F>
void for_each_in_rows(KernelCall& call, int64_t rows, int64_t length, const F& work) {
  if (rows <= 0 || length <= 0) return;
  if (on_device(call)) return for_each(call, rows * length, 1, work);
  call.team().parallel_for(rows, std::max<int64_t>(kPieceElements / length, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < length; ++i) work.at(row, i);
  });
}

// Memory for the duration of the call: contiguous, not initialised.
inline Tensor workspace(KernelCall& call, DType dtype, std::span<const int64_t> shape) {
  if (Backend* backend = backend_of(call.context())) return backend->scratch(dtype, shape);
  return call.scratch().tensor(dtype, shape);
}

// Numbers computed by the host, where the work can read them. REQUIRES: they do not change during the call.
template <class T>
const T* table(KernelCall& call, std::span<const T> numbers) {
  Backend* backend = backend_of(call.context());
  return backend ? reinterpret_cast<const T*>(backend->table(std::as_bytes(numbers))) : numbers.data();
}

// Where device work reports faults, which `settle` returns at the end of the step. On the CPU, data is checked before
// use.
inline work::Report report_of(const KernelCall& call) {
  Backend* backend = backend_of(call.context());
  return backend ? backend->report() : work::Report();
}

}  // namespace sg
