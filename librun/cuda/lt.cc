#include "librun/cuda/lt.h"

#include <dlfcn.h>

#include <algorithm>
#include <optional>

namespace sg::cuda {

struct Lt::Functions {
#define SG_MEMBER(name) decltype(&::name) name = nullptr;
  SG_LT_FUNCTIONS(SG_MEMBER)
#undef SG_MEMBER
};

namespace {

constexpr uintptr_t kMostAligned = 256;
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
constexpr const char* kRemedy = "the CUDA 13 runtime libraries, on the library path";

Status lt_check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return ok_status();
  return Error{ErrorKind::missing,
               std::string(what) + " failed with cuBLAS status " + std::to_string(static_cast<int>(status))};
}

// A matrix as it is stored, column by column.
struct Stored {
  int64_t rows = 0, columns = 0, leading = 0, batch_step = 0;
  bool transposed = false;  // the product wants the other way round
};

// `t` [batch, i, j] as the matrix j x i (or, stored the other way round, i x j).
std::optional<Stored> stored(const Tensor& t) {
  auto fits = [&](int unit, int other) {
    const bool unit_step = t.step(unit) == 1 || t.dim(unit) == 1;
    return unit_step && (t.dim(other) == 1 || t.step(other) >= std::max<int64_t>(t.dim(unit), 1));
  };
  auto leading = [&](int unit, int other) {
    return t.dim(other) == 1 ? std::max<int64_t>(t.dim(unit), 1) : t.step(other);
  };
  if (fits(2, 1)) return Stored{t.dim(2), t.dim(1), leading(2, 1), t.step(0), false};
  if (fits(1, 2)) return Stored{t.dim(1), t.dim(2), leading(1, 2), t.step(0), true};
  return std::nullopt;
}

std::optional<cudaDataType_t> data_type(DType t) {
  switch (t) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: return std::nullopt;
  }
}

Product transposed(const Product& p) {
  return {swap_axes(p.out, 1, 2), swap_axes(p.b, 1, 2), swap_axes(p.a, 1, 2), p.alpha, p.beta};
}

// What all entries of a batch are aligned to, at most what cuBLASLt takes for granted where it is not told.
uint32_t alignment(const Tensor& t) {
  const auto at =
      reinterpret_cast<uintptr_t>(t.data) | static_cast<uintptr_t>(t.dim(0) > 1 ? t.step(0) * dtype_bytes(t.dtype) : 0);
  return static_cast<uint32_t>(std::min<uintptr_t>(at & (~at + 1), kMostAligned));
}

// Handles of the library, given back at the end.
template <class Handle>
struct Held {
  Handle handle = nullptr;
  cublasStatus_t (*destroy)(Handle);
  explicit Held(cublasStatus_t (*d)(Handle)) : destroy(d) {}
  ~Held() {
    if (handle) destroy(handle);
  }
  Held(const Held&) = delete;
};

}  // namespace

Result<const Lt::Functions*> Lt::load() {
  static const Result<Functions> functions = []() -> Result<Functions> {
    SG_ASSIGN(void* library, open_library("libcublasLt.so.13", kRemedy));
    Functions out;
#define SG_FIND(name)                                                    \
  out.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!out.name) return Error{ErrorKind::missing, "libcublasLt.so.13 has no " #name, {}, kRemedy};
    SG_LT_FUNCTIONS(SG_FIND)
#undef SG_FIND
    return out;
  }();
  if (!functions.ok()) return functions.error();
  return &*functions;
}

Status Lt::require() {
  auto loaded = load();
  return loaded.ok() ? ok_status() : Status(loaded.error());
}

Result<std::unique_ptr<Lt>> Lt::open(Device& device) {
  SG_ASSIGN(const Functions* functions, load());
  std::unique_ptr<Lt> out(new Lt(device, *functions));
  SG_TRY(lt_check(functions->cublasLtCreate(&out->handle_), "cublasLtCreate"));
  out->workspace_ = device.memory().take(kWorkspaceBytes);
  if (!out->workspace_) return Error{ErrorKind::missing, "no memory on the GPU for the workspace of matrix products"};
  return out;
}

Lt::~Lt() {
  if (handle_) lt_.cublasLtDestroy(handle_);
  if (workspace_) device_.memory().give(workspace_);
}

Result<bool> Lt::multiply(const Product& given) {
  const bool row_major = given.out.step(2) == 1 || given.out.dim(2) == 1;
  const Product p = row_major ? given : transposed(given);
  const auto out = stored(p.out), first = stored(p.b), second = stored(p.a);
  const auto in_type = data_type(p.a.dtype), out_type = data_type(p.out.dtype);
  if (!out || out->transposed || !first || !second || !in_type || !out_type || p.b.dtype != p.a.dtype) return false;
  if (p.out.dtype != p.a.dtype && p.out.dtype != DType::f32) return false;
  const bool is_double = p.a.dtype == DType::f64;
  const auto compute = is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  const auto scale = is_double ? CUDA_R_64F : CUDA_R_32F;
  const int64_t batch = p.out.dim(0);

  Held<cublasLtMatmulDesc_t> description(lt_.cublasLtMatmulDescDestroy);
  SG_TRY(lt_check(lt_.cublasLtMatmulDescCreate(&description.handle, compute, scale), "cublasLtMatmulDescCreate"));
  auto operation = [&](cublasLtMatmulDescAttributes_t which, const Stored& m) {
    const cublasOperation_t op = m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return lt_check(lt_.cublasLtMatmulDescSetAttribute(description.handle, which, &op, sizeof op),
                    "cublasLtMatmulDescSetAttribute");
  };
  SG_TRY(operation(CUBLASLT_MATMUL_DESC_TRANSA, *first));
  SG_TRY(operation(CUBLASLT_MATMUL_DESC_TRANSB, *second));

  using Layout = Held<cublasLtMatrixLayout_t>;
  Layout a(lt_.cublasLtMatrixLayoutDestroy), b(lt_.cublasLtMatrixLayoutDestroy), d(lt_.cublasLtMatrixLayoutDestroy);
  auto describe = [&](Layout& layout, const Stored& m, cudaDataType_t type) -> Status {
    SG_TRY(lt_check(lt_.cublasLtMatrixLayoutCreate(&layout.handle, type, static_cast<uint64_t>(m.rows),
                                                   static_cast<uint64_t>(m.columns), m.leading),
                    "cublasLtMatrixLayoutCreate"));
    const auto count = static_cast<int32_t>(batch);
    SG_TRY(lt_check(
        lt_.cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "cublasLtMatrixLayoutSetAttribute"));
    return lt_check(lt_.cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                         &m.batch_step, sizeof m.batch_step),
                    "cublasLtMatrixLayoutSetAttribute");
  };
  SG_TRY(describe(a, *first, *in_type));
  SG_TRY(describe(b, *second, *in_type));
  SG_TRY(describe(d, *out, *out_type));

  const uint32_t aligned[] = {alignment(p.b), alignment(p.a), alignment(p.out), alignment(p.out)};  // A, B, C, D
  const Key key = {*in_type,     *out_type,         p.out.dim(1),       p.out.dim(2),    p.a.dim(2),
                   batch,        first->transposed, second->transposed, first->leading,  second->leading,
                   out->leading, first->batch_step, second->batch_step, out->batch_step, aligned[0],
                   aligned[1],   aligned[2]};
  auto chosen = chosen_.find(key);
  if (chosen == chosen_.end()) {
    Held<cublasLtMatmulPreference_t> preference(lt_.cublasLtMatmulPreferenceDestroy);
    SG_TRY(lt_check(lt_.cublasLtMatmulPreferenceCreate(&preference.handle), "cublasLtMatmulPreferenceCreate"));
    const size_t workspace = kWorkspaceBytes;
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;  // none in place
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
      return lt_check(lt_.cublasLtMatmulPreferenceSetAttribute(preference.handle, which, &value, sizeof value),
                      "cublasLtMatmulPreferenceSetAttribute");
    };
    SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace));
    SG_TRY(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]));
    SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]));
    SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]));
    SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[3]));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    cublasStatus_t status = lt_.cublasLtMatmulAlgoGetHeuristic(
        handle_, description.handle, a.handle, b.handle, d.handle, d.handle, preference.handle, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) return false;
    chosen = chosen_.emplace(key, found.algo).first;
  }
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const void *alpha_at = is_double ? static_cast<const void*>(&p.alpha) : &alpha,
             *beta_at = is_double ? static_cast<const void*>(&p.beta) : &beta;
  SG_TRY(lt_check(lt_.cublasLtMatmul(handle_, description.handle, alpha_at, p.b.data, a.handle, p.a.data, b.handle,
                                     beta_at, p.out.data, d.handle, p.out.data, d.handle, &chosen->second, workspace_,
                                     kWorkspaceBytes, reinterpret_cast<cudaStream_t>(device_.stream())),
                  "cublasLtMatmul"));
  return true;
}

}  // namespace sg::cuda
