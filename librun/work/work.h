// Elementwise work, written once for the CPU and for devices: a plain struct that computes everything for index i.
//
//     struct Halve {
//       static constexpr const char* kName = "work_halve";      // of the device's kernel
//       const double* from;
//       double* to;
//       SG_INLINE void operator()(int64_t i) const { to[i] = from[i] / 2; }
//     };
//     for_each(call, n, 1, Halve{x, y});
//
// Memory  belongs to the backend that runs the call: `workspace` and `table` provide it; contiguous_as (cpu/fill.h)
//         provides arguments.
// Device  A struct has a kernel if cuda/kernels/works.h names it. It may hold only numbers, pointers and a Report.
// Order   Indices run concurrently, in any order: index i writes only what no other index reads or writes.
#pragma once

#include <cstdint>

#include "librun/work/inline.h"

namespace sg::work {

// The first error found in the data.
struct Fault {
  enum class Kind : uint32_t { none, index, division, assertion, value };
  unsigned claimed = 0;
  Kind kind = Kind::none;
  uint64_t place = 0;
  int64_t value = 0, limit = 0;
  double number = 0;
};

// Where faults are stored, and the node they belong to.
struct Report {
  Fault* fault = nullptr;
  uint64_t place = 0;

  // True for the first caller.
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
  // `index` counted from the front; 0 and a fault if it is out of range. With `wraps`, negative indices count from the
  // end.
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
