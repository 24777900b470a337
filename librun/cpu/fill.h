// Small things that many kernels need: filling, copying, and walking over strided tensors.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

// Gives every element of `out` the value, converted as PyTorch converts a number to out's dtype.
void fill(KernelCall& call, const Tensor& out, Scalar value);

// out = in, element by element, converted to out's dtype. REQUIRES: same shape; no overlap, or the same view.
void copy(KernelCall& call, const Tensor& out, const Tensor& in);
void copy(ThreadTeam& team, const Tensor& out, const Tensor& in);

// `in` as a contiguous tensor: itself when it is one (and not conjugated), else a copy in scratch memory.
Tensor contiguous(KernelCall& call, const Tensor& in);

// `in` as a contiguous tensor of `dtype`: itself when it is one already.
Tensor contiguous_as(KernelCall& call, const Tensor& in, DType dtype);

// Calls fn(offset_0, ..., offset_n-1) with the element offsets of every row of the tensors given, rows being runs along
// the last axis, in row-major order from row `begin` to `end`. REQUIRES: all of one shape.
//   RowWalker walk({&out, &in});  walk.rows()  rows;  walk.length()  elements of a row
class RowWalker {
 public:
  static constexpr size_t kMaxTensors = 4;
  RowWalker(std::initializer_list<const Tensor*> tensors);
  int64_t rows() const { return rows_; }
  int64_t length() const { return length_; }
  int64_t step(size_t tensor) const { return step_[tensor]; }   // along the row

  template <class Fn>   // fn(const int64_t* offsets, int64_t row)
  void for_rows(int64_t begin, int64_t end, const Fn& fn) const {
    if (begin >= end) return;
    std::array<int64_t, kMaxRank> index{};
    std::array<int64_t, kMaxTensors> offset{};
    seek(begin, &index, &offset);
    for (int64_t row = begin; row < end; ++row) {
      fn(offset.data(), row);
      advance(&index, &offset);
    }
  }

 private:
  void seek(int64_t row, std::array<int64_t, kMaxRank>* index, std::array<int64_t, kMaxTensors>* offset) const;
  void advance(std::array<int64_t, kMaxRank>* index, std::array<int64_t, kMaxTensors>* offset) const;

  size_t count_;
  int outer_ = 0;                       // axes but the last
  int64_t rows_ = 1, length_ = 1;
  std::array<int64_t, kMaxRank> shape_{};
  std::array<std::array<int64_t, kMaxRank>, kMaxTensors> stride_{};
  std::array<int64_t, kMaxTensors> step_{};
};

}  // namespace sg::cpu
