// Matrix products through cuBLASLt, loaded at run time.
//
// The same product always runs the same algorithm: selected once by the heuristic for its sizes, types and layouts,
// with one workspace of a fixed size, and never one that sums parts of k with atomics.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "librun/cuda/device.h"

// clang-format off
#define SG_LT_FUNCTIONS(X)                                                                          \
  X(cublasLtGetVersion) X(cublasLtCreate) X(cublasLtDestroy)                                        \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)        \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)  \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                              \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)
// clang-format on

namespace sg::cuda {

// out [batch, m, n] = alpha * a [batch, m, k] @ b [batch, k, n] + beta * out + bias
struct Product {
  Tensor out, a, b;  // with three axes
  double alpha = 1, beta = 0;
  Tensor bias = {};  // none, or n contiguous numbers of the type of `out`, added to each row
  // For float8 only: scales of the operands, one each, or one per row of `a` and one per column of `b`; and whether the
  // hardware's own sums, which have fewer digits, are acceptable.
  const float *scale_a = nullptr, *scale_b = nullptr;
  bool scales_each = false, fast_sums = false;
};

class Lt {
 public:
  // Errors (missing): the library is missing (libcublasLt.so.13, else 12, whose functions and numbers are the same).
  static Status require();
  static Result<std::unique_ptr<Lt>> open(Device& device);
  ~Lt();

  // Whether a tensor [batch, i, j] can be an operand: rows or columns side by side, none twice.
  static bool takes_strides(const Tensor& t);
  // False, and nothing is done: cuBLASLt does not support the strides or types, or has no algorithm for them.
  Result<bool> multiply(const Product& product);
  // How many kinds of products (by everything that selects an algorithm) the library has no algorithm for; empty =
  // none. Includes the first status that does not simply mean this, since it hints at a wrong call.
  std::string refused() const;

 private:
  struct Functions;
  using Key = std::vector<int64_t>;
  explicit Lt(Device& device, const Functions& functions) : device_(device), lt_(functions) {}
  static Result<const Functions*> load();

  // The steps of `multiply`, in order.
  struct Call;
  Status describe(Call* call) const;
  using Choice = std::optional<cublasLtMatmulAlgo_t>;  // none: the library has no algorithm for such a call
  Result<Choice*> choose(const Call& call);
  Result<bool> run(const Call& call, const cublasLtMatmulAlgo_t& algorithm) const;  // false: it is none after all

  Device& device_;
  const Functions& lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::byte* workspace_ = nullptr;
  std::map<Key, Choice> chosen_;
  std::optional<int> complaint_;  // the first such status
};

}  // namespace sg::cuda
