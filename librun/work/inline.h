// Functions that lie in headers and run on the processor and on devices.
//
// Always inlined: a loop that is compiled for several instruction sets (cpu/isa.h) gets them compiled for each, and two
// object files compiled for two of them never share one body.
#pragma once

#ifdef __CUDACC__
#define SG_INLINE __host__ __device__ __forceinline__
#else
#define SG_INLINE [[gnu::always_inline]] inline
#endif
