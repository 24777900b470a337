// Functions that lie in headers and run on the processor and on devices.
//
// Always inlined: a loop that is compiled for several instruction sets (cpu/isa.h) gets them compiled for each, and two
// object files compiled for two of them never share one body.
// SG_CALL: the same, but a call on devices, for what is long and rare: a kernel that may need it stays small.
#pragma once

#ifdef __CUDACC__
#define SG_INLINE __host__ __device__ __forceinline__
#define SG_CALL inline __host__ __device__ __noinline__
#else
#define SG_INLINE [[gnu::always_inline]] inline
#define SG_CALL SG_INLINE
#endif
