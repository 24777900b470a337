// What kernels of decompositions share: results of whole numbers, batches that broadcast, and what a decomposition says
// of matrices that it cannot do.
#pragma once

#include <string>
#include <vector>

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// i32 numbers on their way to a result.
class Counts {
 public:
  Counts(KernelCall& call, const Tensor& result)
      : target_(result), memory_(call.scratch().tensor(DType::i32, result.sizes())) {}
  int32_t* data() const { return memory_.as<int32_t>(); }
  int64_t count() const { return memory_.elements(); }
  void store(KernelCall& call) const { copy(call, target_, memory_); }

 private:
  Tensor target_, memory_;
};

// Which matrix of a tensor with batch sizes `from` each of those of `to` is, both numbered row-major. REQUIRES: `from`
// broadcasts to `to`.
std::vector<int64_t> matrices_of(std::span<const int64_t> from, std::span<const int64_t> to);

// The error that PyTorch's function `api` raises for the first matrix whose info is not zero; success where there is
// none. `is_matrix`: there is one matrix, without a batch.
Status check_infos(const KernelCall& call, std::string_view api, std::span<const int32_t> infos, bool is_matrix);

// Pivots that a graph brings, counted from 0 in memory of their own. They say which of so many rows are swapped, and
// are never trusted.
Status read_pivots(KernelCall& call, const Tensor& t, int64_t rows, int32_t** out);

// Whether no result has any element: there may be 2^40 matrices of them.
bool gives_nothing(const KernelCall& call);

// A tensor whose last two axes are swapped and, if it is complex, whose numbers are conjugated.
Tensor adjoint_of(const Tensor& t);

template <class T>
void conjugate_all(const Block<T>& b) {
  if constexpr (std::is_same_v<T, Complex>)
    for (int64_t i = 0; i < b.rows; ++i)
      for (int64_t j = 0; j < b.columns; ++j) b(i, j) = conjugate(b(i, j));
}

}  // namespace sg::cpu::linear
