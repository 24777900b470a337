// Copies elements between tensors of equal shape and type, unchanged: in words of up to 16 bytes where adjacent
// elements stay adjacent, in the memory order of `to`.
#pragma once

#include "librun/tensor.h"
#include "librun/work/move.h"

namespace sg::cpu {

struct MovePlan {
  int64_t word_bytes = 1, words = 0;  // 1, 2, 4, 8 or 16 bytes each
  work::WordLine to, from;
};

// REQUIRES: equal shape and type; not empty.
MovePlan plan_move(const Tensor& to, const Tensor& from);

// Calls fn(work) with the work that copies them, for indices 0 to plan.words - 1.
template <class Fn>
void with_move(const MovePlan& plan, const Tensor& to, const Tensor& from, const Fn& fn) {
  auto as = [&]<class Word>(Word) { fn(work::MoveWords<Word>{to.as<Word>(), from.as<Word>(), plan.to, plan.from}); };
  switch (plan.word_bytes) {
    case 1: return as(uint8_t{});
    case 2: return as(uint16_t{});
    case 4: return as(uint32_t{});
    case 8: return as(uint64_t{});
    default: return as(work::Bytes16{});
  }
}

}  // namespace sg::cpu
