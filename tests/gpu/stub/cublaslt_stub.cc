// libcublasLt.so.13 for tests: the calls that librun/cuda/lt.cc makes, each product computed from its definition.
//   SG_STUB_LT=none     no algorithm for any product
//   SG_STUB_LT=refuses  an algorithm is found, and then refuses the product
//   SG_STUB_LT=fails    the algorithm fails when it runs
//   SG_STUB_LT=no_bias  no algorithm adds a bias
#include <cublasLt.h>
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define SG_HOST_KERNELS
#include "librun/cuda/kernels/view.h"
#include "tests/gpu/stub/context.h"

struct Description {
  bool transposes[2] = {false, false};
  bool is_double = false, has_bias = false;
  const void* bias = nullptr;
  const float* scales[2] = {nullptr, nullptr};  // of A and B
  bool scales_each[2] = {false, false};
};
struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t step = 0;
};

namespace {

template <class T>
T* as(void* handle) {
  return static_cast<T*>(handle);
}
template <class T>
const T* as(const void* handle) {
  return static_cast<const T*>(handle);
}

double load(cudaDataType_t type, const void* base, int64_t i) {
  switch (type) {
    case CUDA_R_64F: return static_cast<const double*>(base)[i];
    case CUDA_R_32F: return static_cast<const float*>(base)[i];
    case CUDA_R_8F_E4M3:
      return sg::cuda::from_eighth(sg::cuda::Element::f8e4m3fn, static_cast<const uint8_t*>(base)[i]);
    case CUDA_R_8F_E5M2: return sg::cuda::from_eighth(sg::cuda::Element::f8e5m2, static_cast<const uint8_t*>(base)[i]);
    case CUDA_R_16F: return sg::cuda::from_half(static_cast<const uint16_t*>(base)[i]);
    default: return sg::cuda::from_brain(static_cast<const uint16_t*>(base)[i]);
  }
}
void save(cudaDataType_t type, void* base, int64_t i, double x) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(base)[i] = x; break;
    case CUDA_R_32F: static_cast<float*>(base)[i] = static_cast<float>(x); break;
    case CUDA_R_16F: static_cast<uint16_t*>(base)[i] = sg::cuda::to_half(static_cast<float>(x)); break;
    default: static_cast<uint16_t*>(base)[i] = sg::cuda::to_brain(static_cast<float>(x));
  }
}

struct Work {
  Description description;
  Layout a, b, d;
  const void *a_data, *b_data;
  void* d_data;
  double alpha, beta;

  double element(const Layout& m, const void* data, bool transpose, int64_t row, int64_t column, int64_t batch) const {
    if (transpose) std::swap(row, column);
    return load(m.type, data, batch * m.step + column * m.leading + row);
  }
  double scale(int operand, int64_t place) const {
    const float* scales = description.scales[operand];
    return scales ? scales[description.scales_each[operand] ? place : 0] : 1;
  }
  void run() const {
    const int64_t depth = description.transposes[0] ? a.rows : a.columns;
    for (int64_t batch = 0; batch < d.batch; ++batch)
      for (int64_t column = 0; column < d.columns; ++column)
        for (int64_t row = 0; row < d.rows; ++row) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += element(a, a_data, description.transposes[0], row, k, batch) *
                   element(b, b_data, description.transposes[1], k, column, batch);
          sum *= scale(0, row) * scale(1, column);
          const int64_t at = batch * d.step + column * d.leading + row;
          const double bias = description.has_bias ? load(d.type, description.bias, row) : 0;
          save(d.type, d_data, at, alpha * sum + (beta == 0 ? 0 : beta * load(d.type, d_data, at)) + bias);
        }
  }
};

// What an algorithm was requested with: it relies on pointers of this alignment.
struct Preference {
  uint32_t aligned[4] = {256, 256, 256, 256};  // A, B, C, D
};

bool asked_to_be(const char* what) {
  const char* said = std::getenv("SG_STUB_LT");
  return said && std::strcmp(said, what) == 0;
}

size_t size_of(cublasLtMatmulDescAttributes_t which) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return sizeof(void*);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return sizeof(int8_t);
    default: return sizeof(int32_t);
  }
}

// Float8 needs the contracted dimension to be contiguous in both factors, and sizes in units of 16.
bool is_float8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
bool takes_float8(const Description& d, const Layout& a, const Layout& b, const Layout& out) {
  if (!is_float8(a.type) && !is_float8(b.type)) return true;
  return is_float8(a.type) && is_float8(b.type) && !(a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) &&
         d.transposes[0] && !d.transposes[1] && a.rows % 16 == 0 && a.leading % 16 == 0 && b.leading % 16 == 0 &&
         out.rows % 16 == 0;
}

bool is_aligned(const void* p, uint32_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

}  // namespace

#define STUB extern "C" __attribute__((visibility("default")))

STUB size_t cublasLtGetVersion() { return 130100; }
STUB cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (stub_current_context() == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(1);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
STUB cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t) {
  auto* d = new Description;
  d->is_double = compute == CUBLAS_COMPUTE_64F;
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(d);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete reinterpret_cast<Description*>(d);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t which,
                                                   const void* value, size_t bytes) {
  if (bytes != size_of(which)) return CUBLAS_STATUS_INVALID_VALUE;
  auto* d = reinterpret_cast<Description*>(handle);
  auto scales_each = [&] {
    return *as<cublasLtMatmulMatrixScale_t>(value) == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  };
  auto transposes = [&] { return *as<cublasOperation_t>(value) == CUBLAS_OP_T; };
  if (which == CUBLASLT_MATMUL_DESC_TRANSA) d->transposes[0] = transposes();
  else if (which == CUBLASLT_MATMUL_DESC_TRANSB) d->transposes[1] = transposes();
  else if (which == CUBLASLT_MATMUL_DESC_EPILOGUE)
    d->has_bias = *as<cublasLtEpilogue_t>(value) == CUBLASLT_EPILOGUE_BIAS;
  else if (which == CUBLASLT_MATMUL_DESC_BIAS_POINTER) d->bias = *as<const void*>(value);
  else if (which == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) d->scales[0] = *as<const float*>(value);
  else if (which == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) d->scales[1] = *as<const float*>(value);
  else if (which == CUBLASLT_MATMUL_DESC_A_SCALE_MODE) d->scales_each[0] = scales_each();
  else if (which == CUBLASLT_MATMUL_DESC_B_SCALE_MODE) d->scales_each[1] = scales_each();
  else if (which == CUBLASLT_MATMUL_DESC_FAST_ACCUM) return CUBLAS_STATUS_SUCCESS;
  else return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType_t type, uint64_t rows,
                                               uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete reinterpret_cast<Layout*>(l);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                     cublasLtMatrixLayoutAttribute_t which, const void* value, size_t) {
  auto* l = reinterpret_cast<Layout*>(handle);
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) l->batch = *as<int32_t>(value);
  else if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) l->step = *as<int64_t>(value);
  else return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete reinterpret_cast<Preference*>(p);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                         cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                         size_t) {
  auto& aligned = reinterpret_cast<Preference*>(p)->aligned;
  if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && which <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
    aligned[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = *as<uint32_t>(value);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                                   cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t b_layout,
                                                   cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d_layout,
                                                   cublasLtMatmulPreference_t preference, int,
                                                   cublasLtMatmulHeuristicResult_t* found, int* count) {
  const auto& description = *reinterpret_cast<Description*>(d);
  const auto &a = *reinterpret_cast<Layout*>(a_layout), &b = *reinterpret_cast<Layout*>(b_layout),
             &out = *reinterpret_cast<Layout*>(d_layout);
  const int64_t m = description.transposes[0] ? a.columns : a.rows, k = description.transposes[0] ? a.rows : a.columns;
  const int64_t k2 = description.transposes[1] ? b.columns : b.rows, n = description.transposes[1] ? b.rows : b.columns;
  *count = 0;
  if (m != out.rows || n != out.columns || k != k2 || a.batch != out.batch || b.batch != out.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!takes_float8(description, a, b, out)) return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memset(found, 0, sizeof *found);
  std::memcpy(found->algo.data, reinterpret_cast<Preference*>(preference), sizeof(Preference));
  *count = asked_to_be("none") || (description.has_bias && asked_to_be("no_bias")) ? 0 : 1;
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha, const void* a,
                                   cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                                   const void* beta, const void*, cublasLtMatrixLayout_t, void* out,
                                   cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                                   size_t, cudaStream_t stream) {
  if (!algo || !workspace) return CUBLAS_STATUS_INVALID_VALUE;
  if (asked_to_be("refuses")) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (asked_to_be("fails")) return CUBLAS_STATUS_EXECUTION_FAILED;
  Preference asked;
  std::memcpy(&asked, algo->data, sizeof asked);
  if (!is_aligned(a, asked.aligned[0]) || !is_aligned(b, asked.aligned[1]) || !is_aligned(out, asked.aligned[3]))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto& description = *reinterpret_cast<Description*>(d);
  if (description.has_bias && !is_aligned(description.bias, 16)) {  // on a device a fault of the kernel, if at all
    std::fprintf(stderr, "cublasLtMatmul with a bias at no multiple of 16 bytes\n");
    ::_exit(99);
  }
  if (description.has_bias && !is_aligned(description.bias, asked.aligned[3])) return CUBLAS_STATUS_NOT_SUPPORTED;
  auto number = [&](const void* p) {
    return description.is_double ? *as<double>(p) : static_cast<double>(*as<float>(p));
  };
  auto* work = new Work{description,
                        *reinterpret_cast<Layout*>(a_layout),
                        *reinterpret_cast<Layout*>(b_layout),
                        *reinterpret_cast<Layout*>(out_layout),
                        a,
                        b,
                        out,
                        number(alpha),
                        number(beta)};
  cuLaunchHostFunc(
      reinterpret_cast<CUstream>(stream),
      [](void* data) {
        static_cast<Work*>(data)->run();  // kept: a recorded launch runs again
      },
      work);
  return CUBLAS_STATUS_SUCCESS;
}
