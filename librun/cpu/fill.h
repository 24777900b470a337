// Basic operations for many kernels: filling, copying, and iterating over strided tensors.
#pragma once

#include <algorithm>

#include "librun/kernel.h"

namespace sg::cpu {

// Sets every element of `out` to the value, converted as PyTorch converts a number to out's dtype.
void fill(KernelCall& call, const Tensor& out, Scalar value);

// out = in, element by element, converted to out's dtype. REQUIRES: same shape; no overlap, or the same view.
void copy(KernelCall& call, const Tensor& out, const Tensor& in);
void copy(ThreadTeam& team, const Tensor& out, const Tensor& in);

// `in` as a contiguous tensor: itself if it is one (and not conjugated), else a copy in scratch memory.
Tensor contiguous(KernelCall& call, const Tensor& in);

// `in` as a contiguous tensor of `dtype`: itself if it is one already.
Tensor contiguous_as(KernelCall& call, const Tensor& in, DType dtype);

// Calls fn(offset_0, ..., offset_n-1) with the element offsets of every row of the given tensors, in row-major order
// from row `begin` to `end`; rows are runs along the last axis. REQUIRES: equal shapes.
//   RowWalker walk({&out, &in});  walk.rows()  rows;  walk.length()  elements of a row
class RowWalker {
 public:
  static constexpr size_t kMaxTensors = 4;
  RowWalker(std::initializer_list<const Tensor*> tensors);
  int64_t rows() const { return rows_; }
  int64_t length() const { return length_; }
  int64_t step(size_t tensor) const { return step_[tensor]; }  // along the row
  size_t tensors() const { return count_; }

  template <class Fn>  // fn(const int64_t* offsets, int64_t row)
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
  int outer_ = 0;  // all axes but the last
  int64_t rows_ = 1, length_ = 1;
  std::array<int64_t, kMaxRank> shape_{};
  std::array<std::array<int64_t, kMaxRank>, kMaxTensors> stride_{};
  std::array<int64_t, kMaxTensors> step_{};
};

// Calls fn(const int64_t* offsets, int64_t position, int64_t length) for pieces of rows on all threads: `offsets` are
// those of the piece's first element and `position` its row-major index. A thread takes many short rows at once, and
// long rows in parts (kPieceElements).
template <class Fn>
void parallel_rows(ThreadTeam& team, const RowWalker& walk, const Fn& fn) {
  int64_t length = walk.length();
  if (length == 0 || walk.rows() == 0) return;
  int64_t parts = (length + kPieceElements - 1) / kPieceElements;
  if (parts == 1) {
    team.parallel_for(walk.rows(), std::max<int64_t>(1, kPieceElements / length), [&](int64_t begin, int64_t end) {
      walk.for_rows(begin, end, [&](const int64_t* offsets, int64_t row) { fn(offsets, row * length, length); });
    });
    return;
  }
  team.parallel_for(walk.rows() * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      int64_t row = piece / parts, from = piece % parts * kPieceElements;
      walk.for_rows(row, row + 1, [&](const int64_t* offsets, int64_t) {
        std::array<int64_t, RowWalker::kMaxTensors> at{};
        for (size_t k = 0; k < walk.tensors(); ++k) at[k] = offsets[k] + from * walk.step(k);
        fn(at.data(), row * length + from, std::min(kPieceElements, length - from));
      });
    }
  });
}

}  // namespace sg::cpu
