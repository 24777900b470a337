// Runs work by element (work.h): on the threads of the rank, or on its device.
#pragma once

#include <span>

#include "librun/backend.h"
#include "librun/cpu/fill.h"
#include "librun/work/work.h"

namespace sg {

inline bool on_device(const KernelCall& call) { return backend_of(call.context()) != nullptr; }

// `grain`: how many numbers are worth a thread's while.
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

// The same over rows of `length` numbers: number i is work.at(i / length, i % length), which the processor does not
// divide for.
template <class F>
void for_each_in_rows(KernelCall& call, int64_t rows, int64_t length, const F& work) {
  if (rows <= 0 || length <= 0) return;
  if (on_device(call)) return for_each(call, rows * length, 1, work);
  call.team().parallel_for(rows, std::max<int64_t>(cpu::kPieceElements / length, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < length; ++i) work.at(row, i);
  });
}

// Memory for the time of the call: contiguous, not initialised.
inline Tensor workspace(KernelCall& call, DType dtype, std::span<const int64_t> shape) {
  if (Backend* backend = backend_of(call.context())) return backend->scratch(dtype, shape);
  return call.scratch().tensor(dtype, shape);
}

// Numbers that the host has worked out, where the work can read them. REQUIRES: they stay as they are during the call.
template <class T>
const T* table(KernelCall& call, std::span<const T> numbers) {
  Backend* backend = backend_of(call.context());
  return backend ? reinterpret_cast<const T*>(backend->table(std::as_bytes(numbers))) : numbers.data();
}

// Where faults of a device go: it says so when the step ends. On the processor data is checked before it is used.
inline work::Report report_of(const KernelCall& call) {
  Backend* backend = backend_of(call.context());
  return backend ? backend->report() : work::Report();
}

}  // namespace sg
