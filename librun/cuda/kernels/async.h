// Asynchronous copies from global to shared memory, which proceed while lanes compute.
//
//     copy_async<16>(to, from, there);   // 16 bytes, of which `there` are read and the others are zeros
//     ...
//     wait_for_copies();                 // this lane's
//     block.sync();                      // and now all lanes'
//
// Both sides are aligned to the size of a copy: 4 or 16 bytes. A CPU copies immediately; the stand-in for lanes copies
// either when the copy is requested or when it is waited for (tests/gpu/stub/lanes.h): code that works in both modes
// depends on neither.
#pragma once

#include "librun/cuda/kernels/block.h"

namespace sg::cuda {

template <int kBytes>
SG_FN void copy_async(void* to, const void* from, int there) {
  static_assert(kBytes == 4 || kBytes == 16);
#if defined(__CUDACC__)
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const size_t source = __cvta_generic_to_global(from);
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(source), "r"(there) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(source), "r"(there) : "memory");
#elif defined(SG_LANE_KERNELS)
  ::lanes::copy_async(to, from, kBytes, there);
#else
  std::memset(to, 0, kBytes);
  std::memcpy(to, from, static_cast<size_t>(there));
#endif
}

SG_FN void wait_for_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#elif defined(SG_LANE_KERNELS)
  ::lanes::wait_for_copies();
#endif
}

}  // namespace sg::cuda
