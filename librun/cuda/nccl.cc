#include "librun/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>

#include "libgraph/base/hex.h"

namespace sg::cuda {
namespace {

constexpr int kOldestNccl = 21800;  // first with non-blocking communicators that can be aborted completely
constexpr const char* kNcclRemedy =
    "NCCL 2.18 or newer on the library path (a torch has it in site-packages/nvidia/nccl/lib), or --comm local";

Result<Nccl> open_nccl() {
  // Else NCCL connects within the first collective of a kind on each communicator (nccl_connect.h). Read by its first
  // call.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  SG_ASSIGN(void* library, open_library({"libnccl.so.2"}, kNcclRemedy));
  Nccl out;
#define SG_FIND(name)                                                    \
  out.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!out.name) return Error{ErrorKind::missing, "libnccl.so.2 has no " #name, {}, kNcclRemedy};
  SG_NCCL_FUNCTIONS(SG_FIND)
#undef SG_FIND
  out.ncclCommSplit = reinterpret_cast<decltype(&::ncclCommSplit)>(dlsym(library, "ncclCommSplit"));
  if (out.ncclGetVersion(&out.version) != ncclSuccess || out.version < kOldestNccl)
    return Error{
        ErrorKind::missing,
        "NCCL " + std::to_string(out.version / 10000) + "." + std::to_string(out.version / 100 % 100) + " is too old",
        {},
        kNcclRemedy};
  return out;
}

}  // namespace

Status Nccl::check(ncclResult_t code, const char* what, uint32_t rank) const {
  if (code == ncclSuccess || code == ncclInProgress) return ok_status();
  return Error{ErrorKind::rank_failed,
               "rank " + std::to_string(rank) + ": " + what + " failed: " + ncclGetErrorString(code)};
}

Result<const Nccl*> load_nccl() {
  static const Result<Nccl> nccl = open_nccl();
  if (!nccl.ok()) return nccl.error();
  return &*nccl;
}

std::string hex_of(const ncclUniqueId& id) { return hex(std::as_bytes(std::span(id.internal))); }

std::optional<ncclUniqueId> id_of(std::string_view hex) {
  ncclUniqueId id;
  if (hex.size() != 2 * sizeof id.internal) return std::nullopt;
  auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
  return id;
}

std::optional<ncclDataType_t> nccl_type(DType t) {
  switch (t) {
    case DType::f64:
    case DType::c128: return ncclFloat64;
    case DType::f32:
    case DType::c64: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::i8: return ncclInt8;
    case DType::f8e4m3fn:  // moved, but never summed
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz:
    case DType::u8: return ncclUint8;
    default: return std::nullopt;
  }
}

std::optional<ncclRedOp_t> nccl_reduction(ReduceKind kind, DType t) {
  switch (kind) {
    case ReduceKind::sum: return ncclSum;
    case ReduceKind::average: return is_floating(t) ? std::optional(ncclAvg) : std::nullopt;
    case ReduceKind::product: return is_complex(t) ? std::nullopt : std::optional(ncclProd);
    case ReduceKind::minimum: return is_floating(t) ? std::nullopt : std::optional(ncclMin);  // NaN must win
    case ReduceKind::maximum: return is_floating(t) ? std::nullopt : std::optional(ncclMax);
    default: return std::nullopt;
  }
}

}  // namespace sg::cuda
