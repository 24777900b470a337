// Functions defined in headers, for the CPU and for devices.
//
// They are always inlined: a loop compiled for several instruction sets (cpu/isa.h) gets them compiled for each, and
// object files compiled for different ones never share a body.
// SG_CALL: the same, except that on devices it is a call, for long and rarely used code: kernels that may need it stay
// small.
#pragma once

#ifdef __CUDACC__
#define SG_INLINE __host__ __device__ __forceinline__
#define SG_CALL inline __host__ __device__ __noinline__
#else
#define SG_INLINE [[gnu::always_inline]] inline
#define SG_CALL SG_INLINE
#endif
