// Matrix products through cuBLASLt, found at run time.
//
// The same product always runs the same algorithm: chosen once by the heuristic for its sizes, types and layouts, with
// one workspace of a fixed size, and never one that sums parts of k by atomics.
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
  Tensor out, a, b;  // of three axes
  double alpha = 1, beta = 0;
  Tensor bias = {};  // none, or n numbers of the type of `out`, side by side, which are added to each row
  // Of float8 alone: factors of the operands, one each, or one a row of `a` and one a column of `b`; and whether sums
  // may be those of the hardware, which has fewer digits for them.
  const float *scale_a = nullptr, *scale_b = nullptr;
  bool scales_each = false, fast_sums = false;
};

class Lt {
 public:
  // Errors (missing): the library is not there, or older than what this was built with.
  static Status require();
  static Result<std::unique_ptr<Lt>> open(Device& device);
  ~Lt();

  // False: strides or types that cuBLASLt does not take, or it has no algorithm for them, and nothing has been done.
  Result<bool> multiply(const Product& product);
  // How many kinds of products, by what an algorithm is chosen by, the library has had none for; empty = none. A status
  // that does not just say so, which hints at a call that is wrong, is told.
  std::string refused() const;

 private:
  struct Functions;
  using Key = std::vector<int64_t>;
  explicit Lt(Device& device, const Functions& functions) : device_(device), lt_(functions) {}
  static Result<const Functions*> load();

  // What `multiply` does, one after the other.
  struct Call;
  Status describe(Call* call) const;
  using Choice = std::optional<cublasLtMatmulAlgo_t>;  // none: the library has none for such a call
  Result<Choice*> choose(const Call& call);
  Result<bool> run(const Call& call, const cublasLtMatmulAlgo_t& algorithm) const;  // false: it is none after all

  Device& device_;
  const Functions& lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::byte* workspace_ = nullptr;
  std::map<Key, Choice> chosen_;
  std::optional<int> complaint_;  // the first status of that kind
};

}  // namespace sg::cuda
