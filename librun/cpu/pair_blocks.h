// Work on pairs of elements (work/pair.h) on the CPU: in double, a block of elements at a time, so that no intermediate
// of the operands' size is written.
#pragma once

#include <algorithm>
#include <optional>

#include "librun/any_device/give_loss.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/lanes.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {

// An operand, broadcast to the shape of the losses. Omitted ones are blocks of ones, because testing for null prevents
// vectorization.
class BlockOperand {
 public:
  explicit BlockOperand(KernelCall& call);  // omitted
  BlockOperand(KernelCall& call, const Tensor& t, std::span<const int64_t> shape);
  // Elements [first, first + n), n <= kLaneBlock.
  const double* at(int64_t first, int64_t n, int thread) const {
    return reader_ ? reader_->piece(first, n, thread) : same_;
  }

 private:
  std::optional<RowReader<double>> reader_;
  const double* same_ = nullptr;  // a single repeated number
};

template <class Work>
SG_CLONES void do_each(int64_t n, const Work& work) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) work(i);
}

// Writes the results of the work that make(first, n, thread, memory of n doubles) returns, for all elements.
template <class Make>
void write_blocks(KernelCall& call, const Tensor& result, const Make& make) {
  const ResultRows rows(call, result, -1);
  const int64_t n = result.elements();
  const RowWriter<double> writer(call, rows.tensor(), kLaneBlock);
  call.team().parallel_for_indexed(
      (n + kLaneBlock - 1) / kLaneBlock, kPieceElements / kLaneBlock, [&](int thread, int64_t begin, int64_t end) {
        for (int64_t first = begin * kLaneBlock; first < std::min(n, end * kLaneBlock); first += kLaneBlock) {
          const int64_t count = std::min(kLaneBlock, n - first);
          do_each(count, make(first, count, thread, writer.piece(first, thread)));
          writer.done_piece(first, count, thread);
        }
      });
  rows.store(call);
}

// Reduces the losses that the work computes, as the call specifies; in the order of give_loss.
template <class Make>
void give_losses(KernelCall& call, int64_t n, const Make& make) {
  const int64_t reduction = call.integer("reduction"), pieces = (n + kPieceElements - 1) / kPieceElements;
  if (reduction == kNone) return write_blocks(call, call.result(), make);
  auto* partial = call.scratch().take<double>(pieces + 1);
  call.team().parallel_for_indexed(pieces, 1, [&](int thread, int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      double losses[kLaneBlock], sum = 0;
      const int64_t last = std::min(n, (piece + 1) * kPieceElements);
      for (int64_t first = piece * kPieceElements; first < last; first += kLaneBlock) {
        const int64_t count = std::min(kLaneBlock, last - first);
        do_each(count, make(first, count, thread, losses));
        sum += row_sum(losses, count);
      }
      partial[piece] = sum;
    }
  });
  const double sum = row_sum(partial, pieces);
  fill(call, call.result(), Scalar::floating(reduction == kMean ? sum / static_cast<double>(n) : sum));
}

}  // namespace sg::cpu
