// NCCL, found at run time: its functions, and what of ours is which of its.
#pragma once

#include <nccl.h>

#include <optional>
#include <string>
#include <string_view>

#include "librun/comm.h"
#include "librun/cuda/device.h"

// clang-format off
#define SG_NCCL_FUNCTIONS(X)                                                                        \
  X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetUniqueId)                                        \
  X(ncclCommInitRankConfig) X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort)                 \
  X(ncclCommGetAsyncError) X(ncclGroupStart) X(ncclGroupEnd) X(ncclSend) X(ncclRecv)                \
  X(ncclAllGather) X(ncclBroadcast) X(ncclAllReduce) X(ncclReduceScatter)
// clang-format on

namespace sg::cuda {

struct Nccl {
#define SG_MEMBER(name) decltype(&::name) name = nullptr;
  SG_NCCL_FUNCTIONS(SG_MEMBER)
#undef SG_MEMBER
  decltype(&::ncclCommSplit) ncclCommSplit = nullptr;  // null: the library has none
  int version = 0;

  // What a call came to; operations that go on are fine.
  Status check(ncclResult_t code, const char* what, uint32_t rank) const;
};

// Errors (missing): the library is not there, or too old.
Result<const Nccl*> load_nccl();

// An id as text, to be told to other ranks.
std::string hex_of(const ncclUniqueId& id);
std::optional<ncclUniqueId> id_of(std::string_view hex);

// What NCCL sums by itself; none: an exchange, and our own sum.
std::optional<ncclDataType_t> nccl_type(DType t);
std::optional<ncclRedOp_t> nccl_reduction(ReduceKind kind, DType t);

// One communicator a group, with its stream.
struct NcclChannel {
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
};

}  // namespace sg::cuda
