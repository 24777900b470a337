// The CUDA driver, loaded at run time: nothing is linked against it.
#pragma once

#include <cuda.h>

#include <initializer_list>
#include <string>

#include "libgraph/base/result.h"

// The header maps this name to a newer function, which older drivers lack.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end);

// The driver functions used. tests/gpu has a stand-in for each.
// clang-format off
#define SG_CUDA_FUNCTIONS(X)                                                                                         \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute)       \
  X(cuDeviceGetUuid_v2) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent)                \
  X(cuMemGetInfo_v2) X(cuMemAlloc_v2)                                                                                 \
  X(cuMemFree_v2) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2)                  \
  X(cuMemcpyAsync) X(cuMemcpyDtoDAsync_v2) X(cuStreamCreate) X(cuStreamCreateWithPriority)                            \
  X(cuCtxGetStreamPriorityRange) X(cuStreamDestroy_v2) X(cuStreamSynchronize)                                         \
  X(cuStreamQuery) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuEventDestroy_v2)        \
  X(cuEventElapsedTime) X(cuMemsetD8Async)                                                                            \
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

// Loads and initializes the driver, once; the first caller decides how code is loaded. `all_at_once`: all code of all
// libraries before anything runs, which costs seconds at every start, and a GiB of device memory with cuBLASLt; else
// each kernel before its first launch. Errors (missing): no driver, a too old one, or no device.
Result<const Driver*> load_driver(bool all_at_once);

// Ok, or an error with the driver's code: `what` failed with CUDA_ERROR_...
Status check(const Driver& driver, CUresult code, const char* what);

#define SG_CU(driver, call) SG_TRY(::sg::cuda::check(driver, (driver).call, #call))

// The first library there is of these file names, e.g. "libcublasLt.so.13": opened once and kept open. An error is
// about the first name, or the first file that exists but does not load.
Result<void*> open_library(std::initializer_list<const char*> files, const char* remedy);

}  // namespace sg::cuda
