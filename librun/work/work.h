// Work by element, written once for the processor and for devices: a plain struct that computes what belongs to number
// i.
//
//     struct Halve {
//       static constexpr const char* kName = "work_halve";      // of the device's kernel
//       const double* from;
//       double* to;
//       SG_INLINE void operator()(int64_t i) const { to[i] = from[i] / 2; }
//     };
//     for_each(call, n, 1, Halve{x, y});
//
// Memory  is that of whoever runs the call: `workspace` and `table` give it; contiguous_as (cpu/fill.h) gives
//         arguments.
// Device  A struct has a kernel where cuda/kernels/works.h names it. It holds nothing but numbers, pointers and a
//         Report.
// Order   Numbers are done in any order, at once: number i writes what no other reads or writes.
#pragma once

#include <cstdint>

#include "librun/work/inline.h"

namespace sg::work {

// What went wrong with the data, the first of it.
struct Fault {
  enum class Kind : uint32_t { none, index, division, assertion, value };
  unsigned claimed = 0;
  Kind kind = Kind::none;
  uint64_t place = 0;
  int64_t value = 0, limit = 0;
  double number = 0;
};

// Where faults go, and whose they are.
struct Report {
  Fault* fault = nullptr;
  uint64_t place = 0;

  // True for whoever comes first.
  SG_INLINE static bool claim(unsigned* at) {
#ifdef __CUDA_ARCH__
    return atomicCAS(at, 0u, 1u) == 0u;
#else
    unsigned none = 0;
    return __atomic_compare_exchange_n(at, &none, 1u, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
  }
  SG_INLINE void raise(Fault::Kind kind, int64_t value = 0, int64_t limit = 0, double number = 0) const {
    if (!claim(&fault->claimed)) return;
    fault->kind = kind;
    fault->place = place;
    fault->value = value;
    fault->limit = limit;
    fault->number = number;
  }
  // `index` counted from the front; 0 and a fault when it is out of range. Negative ones count from the end if it
  // `wraps`.
  SG_INLINE int64_t checked_index(int64_t index, int64_t size, bool wraps) const {
    int64_t wrapped = wraps && index < 0 ? index + size : index;
    if (wrapped >= 0 && wrapped < size) return wrapped;
    raise(Fault::Kind::index, index, size);
    return 0;
  }
};

}  // namespace sg::work

namespace sg {

template <class F>
struct EachArgs {
  int64_t count = 0;
  F work;
};

}  // namespace sg
