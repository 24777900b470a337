// Helpers for kernels of decompositions: integer results, batches that broadcast, and errors for matrices that cannot
// be decomposed.
#pragma once

#include <string>
#include <vector>

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// i32 numbers to be stored in a result.
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

// For each matrix of batch shape `to`, the index of the corresponding matrix of batch shape `from`, both in row-major
// order. REQUIRES: `from` broadcasts to `to`.
std::vector<int64_t> matrices_of(std::span<const int64_t> from, std::span<const int64_t> to);

// The error that PyTorch's function `api` raises for the first matrix with a nonzero info; success if there is none.
// `is_matrix`: a single matrix without a batch.
Status check_infos(const KernelCall& call, std::string_view api, std::span<const int32_t> infos, bool is_matrix);

// Pivots given by the graph, copied and counted from 0. They say which of `rows` rows are swapped, and are never
// trusted.
Status read_pivots(KernelCall& call, const Tensor& t, int64_t rows, int32_t** out);

// Whether all results are empty: there may be 2^40 empty matrices.
bool gives_nothing(const KernelCall& call);

// A tensor with its last two axes swapped and, if it is complex, conjugated.
Tensor adjoint_of(const Tensor& t);

template <class T>
void conjugate_all(const Block<T>& b) {
  if constexpr (std::is_same_v<T, Complex>)
    for (int64_t i = 0; i < b.rows; ++i)
      for (int64_t j = 0; j < b.columns; ++j) b(i, j) = conjugate(b(i, j));
}

}  // namespace sg::cpu::linear
