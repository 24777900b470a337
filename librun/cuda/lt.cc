#include "librun/cuda/lt.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

#include "libgraph/base/human.h"

namespace sg::cuda {

struct Lt::Functions {
#define SG_MEMBER(name) decltype(&::name) name = nullptr;
  SG_LT_FUNCTIONS(SG_MEMBER)
#undef SG_MEMBER
  size_t version = 0;  // 130100 = 13.1
};

// A matrix as stored, in column-major order.
struct StoredMatrix {
  int64_t rows = 0, columns = 0, leading = 0, batch_step = 0;
  bool transposed = false;  // the product needs its transpose
};

namespace {

constexpr uintptr_t kMostAligned = 256;
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
constexpr size_t kScalesEachVersion = 120900;  // first with a scale for each row and column
constexpr const char* kLtRemedy =
    "the CUDA 13 runtime libraries on the library path (a torch of CUDA 13 has them in site-packages/nvidia/cu13/lib)";

Status lt_check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return ok_status();
  return Error{ErrorKind::missing,
               std::string(what) + " failed with cuBLAS status " + std::to_string(static_cast<int>(status))};
}

// `t` [batch, i, j] as the matrix j x i (or i x j, if it is stored transposed).
std::optional<StoredMatrix> stored(const Tensor& t) {
  auto fits = [&](int unit, int other) {
    const bool unit_step = t.step(unit) == 1 || t.dim(unit) == 1;
    return unit_step && (t.dim(other) == 1 || t.step(other) >= std::max<int64_t>(t.dim(unit), 1));
  };
  auto leading = [&](int unit, int other) {
    return t.dim(other) == 1 ? std::max<int64_t>(t.dim(unit), 1) : t.step(other);
  };
  if (fits(2, 1)) return StoredMatrix{t.dim(2), t.dim(1), leading(2, 1), t.step(0), false};
  if (fits(1, 2)) return StoredMatrix{t.dim(1), t.dim(2), leading(1, 2), t.step(0), true};
  return std::nullopt;
}

std::optional<cudaDataType_t> data_type(DType t) {
  switch (t) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::f8e4m3fn: return CUDA_R_8F_E4M3;
    case DType::f8e5m2: return CUDA_R_8F_E5M2;
    default: return std::nullopt;
  }
}

Product transposed(const Product& p) {
  Product out = p;
  out.out = swap_axes(p.out, 1, 2), out.a = swap_axes(p.b, 1, 2), out.b = swap_axes(p.a, 1, 2);
  std::swap(out.scale_a, out.scale_b);
  return out;
}

// The common alignment of all entries of a batch, up to what cuBLASLt assumes by default. A missing tensor has any
// alignment.
uint32_t alignment(const Tensor& t) {
  if (t.is_none()) return kMostAligned;
  const auto at = reinterpret_cast<uintptr_t>(t.data) |
                  static_cast<uintptr_t>(t.rank == 3 && t.dim(0) > 1 ? t.step(0) * dtype_bytes(t.dtype) : 0);
  return static_cast<uint32_t>(std::min<uintptr_t>(at & (~at + 1), kMostAligned));
}

// A handle of the library, destroyed at the end.
template <class Handle>
using Held = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

}  // namespace

Result<const Lt::Functions*> Lt::load() {
  static const Result<Functions> functions = []() -> Result<Functions> {
    SG_ASSIGN(void* library, open_library({"libcublasLt.so.13", "libcublasLt.so.12"}, kLtRemedy));
    Functions out;
#define SG_FIND(name)                                                    \
  out.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!out.name) return Error{ErrorKind::missing, "libcublasLt has no " #name, {}, kLtRemedy};
    SG_LT_FUNCTIONS(SG_FIND)
#undef SG_FIND
    out.version = out.cublasLtGetVersion();
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

// A product in the library's terms: out' = b' a', all in column-major order.
struct Lt::Call {
  using Layout = Held<cublasLtMatrixLayout_t>;
  Product product;  // its `out` is row-major
  StoredMatrix a, b, out;
  cudaDataType_t a_type = CUDA_R_32F, b_type = CUDA_R_32F, out_type = CUDA_R_32F;
  std::array<uint32_t, 4> aligned{};  // A, B, C, D
  Held<cublasLtMatmulDesc_t> description;
  Layout layout_a, layout_b, layout_out;

  explicit Call(const Functions& lt)
      : description(nullptr, lt.cublasLtMatmulDescDestroy),
        layout_a(nullptr, lt.cublasLtMatrixLayoutDestroy),
        layout_b(nullptr, lt.cublasLtMatrixLayoutDestroy),
        layout_out(nullptr, lt.cublasLtMatrixLayoutDestroy) {}

  bool is_double() const { return a_type == CUDA_R_64F; }
  bool is_scaled() const { return product.scale_a != nullptr; }
  int64_t batch() const { return product.out.dim(0); }

  // False: the library does not support the strides or types.
  bool take(const Product& given) {
    const bool row_major = given.out.step(2) == 1 || given.out.dim(2) == 1;
    product = row_major ? given : transposed(given);
    const Tensor &first = product.b, &second = product.a, &to = product.out;
    const auto stored_out = stored(to), stored_a = stored(first), stored_b = stored(second);
    const auto in_a = data_type(first.dtype), in_b = data_type(second.dtype), result = data_type(to.dtype);
    if (!stored_out || stored_out->transposed || !stored_a || !stored_b || !in_a || !in_b || !result) return false;
    if (!is_scaled() && (first.dtype != second.dtype || (to.dtype != second.dtype && to.dtype != DType::f32)))
      return false;
    if (!product.bias.is_none() && (!row_major || to.dtype == DType::f64)) return false;
    a = *stored_a, b = *stored_b, out = *stored_out;
    a_type = *in_a, b_type = *in_b, out_type = *result;
    aligned = {alignment(first), alignment(second), alignment(to), std::min(alignment(to), alignment(product.bias))};
    return true;
  }

  Status describe(const Functions& lt, const StoredMatrix& m, cudaDataType_t type, Layout* made) const;

  // Everything that the selection of an algorithm depends on.
  Key key() const {
    return {a_type,
            b_type,
            out_type,
            product.out.dim(1),
            product.out.dim(2),
            product.a.dim(2),
            batch(),
            a.transposed,
            b.transposed,
            a.leading,
            b.leading,
            out.leading,
            a.batch_step,
            b.batch_step,
            out.batch_step,
            aligned[0],
            aligned[1],
            aligned[2],
            aligned[3],
            !product.bias.is_none(),
            alignment(product.bias),  // given to the library by its address
            is_scaled(),
            product.scales_each,
            product.fast_sums};
  }
};

Status Lt::Call::describe(const Functions& lt, const StoredMatrix& m, cudaDataType_t type, Layout* made) const {
  cublasLtMatrixLayout_t layout = nullptr;
  SG_TRY(lt_check(lt.cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(m.rows),
                                                static_cast<uint64_t>(m.columns), m.leading),
                  "cublasLtMatrixLayoutCreate"));
  made->reset(layout);
  auto set = [&](cublasLtMatrixLayoutAttribute_t which, const auto& value) {
    return lt_check(lt.cublasLtMatrixLayoutSetAttribute(layout, which, &value, sizeof value),
                    "cublasLtMatrixLayoutSetAttribute");
  };
  SG_TRY(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch())));
  return set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.batch_step);
}

// The library's A is the product's b.
template <class Set>
Status describe_scales(const Product& p, const Set& set) {
  SG_TRY(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.scale_b)));
  SG_TRY(set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(p.scale_a)));
  if (p.scales_each)
    for (auto which : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
      SG_TRY(set(which, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
  return set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.fast_sums));
}

Status Lt::describe(Call* call) const {
  const auto compute = call->is_double() ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  const auto scale = call->is_double() ? CUDA_R_64F : CUDA_R_32F;
  cublasLtMatmulDesc_t description = nullptr;
  SG_TRY(lt_check(lt_.cublasLtMatmulDescCreate(&description, compute, scale), "cublasLtMatmulDescCreate"));
  call->description.reset(description);
  auto set = [&](cublasLtMatmulDescAttributes_t which, const auto& value) {
    return lt_check(lt_.cublasLtMatmulDescSetAttribute(description, which, &value, sizeof value),
                    "cublasLtMatmulDescSetAttribute");
  };
  SG_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, call->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  SG_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB, call->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (!call->product.bias.is_none()) {
    SG_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    SG_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(call->product.bias.data)));
  }
  if (call->is_scaled()) SG_TRY(describe_scales(call->product, set));
  SG_TRY(call->describe(lt_, call->a, call->a_type, &call->layout_a));
  SG_TRY(call->describe(lt_, call->b, call->b_type, &call->layout_b));
  return call->describe(lt_, call->out, call->out_type, &call->layout_out);
}

Result<Lt::Choice*> Lt::choose(const Call& call) {
  auto [it, is_new] = chosen_.try_emplace(call.key());
  Choice& choice = it->second;
  if (!is_new) return &choice;
  cublasLtMatmulPreference_t created = nullptr;
  SG_TRY(lt_check(lt_.cublasLtMatmulPreferenceCreate(&created), "cublasLtMatmulPreferenceCreate"));
  const Held<cublasLtMatmulPreference_t> preference(created, lt_.cublasLtMatmulPreferenceDestroy);
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
    return lt_check(lt_.cublasLtMatmulPreferenceSetAttribute(created, which, &value, sizeof value),
                    "cublasLtMatmulPreferenceSetAttribute");
  };
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // not in place, and no parts in half precision
  SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kWorkspaceBytes)));
  SG_TRY(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, call.aligned[0]));
  SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, call.aligned[1]));
  SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, call.aligned[2]));
  SG_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, call.aligned[3]));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const cublasStatus_t status = lt_.cublasLtMatmulAlgoGetHeuristic(
      handle_, call.description.get(), call.layout_a.get(), call.layout_b.get(), call.layout_out.get(),
      call.layout_out.get(), preference.get(), 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED && !complaint_) complaint_ = status;
  if (status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS) choice = found.algo;
  return &choice;
}

Result<bool> Lt::run(const Call& call, const cublasLtMatmulAlgo_t& algorithm) const {
  const Product& p = call.product;
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const void* alpha_at = call.is_double() ? static_cast<const void*>(&p.alpha) : &alpha;
  const void* beta_at = call.is_double() ? static_cast<const void*>(&p.beta) : &beta;
  const cublasStatus_t status = lt_.cublasLtMatmul(
      handle_, call.description.get(), alpha_at, p.b.data, call.layout_a.get(), p.a.data, call.layout_b.get(), beta_at,
      p.out.data, call.layout_out.get(), p.out.data, call.layout_out.get(), &algorithm, workspace_, kWorkspaceBytes,
      reinterpret_cast<cudaStream_t>(device_.stream()));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  SG_TRY(lt_check(status, "cublasLtMatmul"));
  return true;
}

std::string Lt::refused() const {
  const auto kinds = std::ranges::count_if(chosen_, [](const auto& kind) { return !kind.second; });
  if (kinds == 0) return "";
  std::string out = plural(static_cast<size_t>(kinds), "kind");
  if (complaint_) out += " (asked for one, it answered with status " + std::to_string(*complaint_) + ")";
  return out;
}

bool Lt::takes_strides(const Tensor& t) { return stored(t).has_value(); }

Result<bool> Lt::multiply(const Product& product) {
  Call call(lt_);
  if (!call.take(product) || (product.scales_each && lt_.version < kScalesEachVersion)) return false;
  SG_TRY(describe(&call));
  SG_ASSIGN(Choice * choice, choose(call));
  if (!*choice) return false;
  SG_ASSIGN(const bool ran, run(call, **choice));
  if (!ran) choice->reset();
  return ran;
}

}  // namespace sg::cuda
