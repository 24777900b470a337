// The CUDA driver, found at run time: nothing is linked with it.
#pragma once

#include <cuda.h>

#include <string>

#include "libgraph/result.h"

// The header means a newer function by this name, which older drivers lack.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end);

// What of the driver is called. tests/gpu has a stand-in for each.
// clang-format off
#define SG_CUDA_FUNCTIONS(X)                                                                                         \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute)       \
  X(cuDeviceGetUuid_v2) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent)                \
  X(cuMemGetInfo_v2) X(cuMemAlloc_v2)                                                                                 \
  X(cuMemFree_v2) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2)                  \
  X(cuMemcpyAsync) X(cuMemcpyDtoDAsync_v2) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize)            \
  X(cuStreamQuery) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuEventDestroy_v2)        \
  X(cuEventElapsedTime)                                                                                               \
  X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch)                    \
  X(cuGraphExecDestroy) X(cuGraphDestroy)                                                                             \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel) X(cuGetErrorName) X(cuGetErrorString)
// clang-format on

namespace sg::cuda {

struct Driver {
#define SG_MEMBER(name) decltype(&::name) name = nullptr;
  SG_CUDA_FUNCTIONS(SG_MEMBER)
#undef SG_MEMBER
  int version = 0;  // 13000 = 13.0
};

// Loads and starts it, once; who comes first says how code is loaded. `all_at_once`: all code of all libraries before
// anything runs, which takes seconds of each start and a GiB of the device with cuBLASLt; else each kernel before its
// first launch. Errors (missing): there is none, it is too old, or there is no device.
Result<const Driver*> load_driver(bool all_at_once);

// Ok, or what the driver says of it: `what` failed with CUDA_ERROR_...
Status check(const Driver& driver, CUresult code, const char* what);

#define SG_CU(driver, call) SG_TRY(::sg::cuda::check(driver, (driver).call, #call))

// A library by its file name, e.g. "libcublasLt.so.13": opened once and kept.
Result<void*> open_library(const char* file, const char* remedy);

}  // namespace sg::cuda
