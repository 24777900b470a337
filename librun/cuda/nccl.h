// NCCL, loaded at run time: its functions, and the mapping of our types and reductions to its own.
#pragma once

#include <nccl.h>

#include <optional>
#include <string>
#include <string_view>

#include "librun/comm/comm.h"
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
  decltype(&::ncclCommSplit) ncclCommSplit = nullptr;  // null: the library lacks it
  int version = 0;

  // The result of a call as a status; operations still in progress are ok.
  Status check(ncclResult_t code, const char* what, uint32_t rank) const;
};

// Errors (missing): the library is missing or too old.
Result<const Nccl*> load_nccl();

// An id as text, to send to other ranks.
std::string hex_of(const ncclUniqueId& id);
std::optional<ncclUniqueId> id_of(std::string_view hex);

// The types and reductions that NCCL supports; none: we exchange the data and sum ourselves.
std::optional<ncclDataType_t> nccl_type(DType t);
std::optional<ncclRedOp_t> nccl_reduction(ReduceKind kind, DType t);

// A group's communicator with its stream.
struct NcclChannel {
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
};

}  // namespace sg::cuda
