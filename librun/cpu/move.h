// Elements moved from one tensor to another of the same shape and type, as they are: in words of up to 16 bytes where
// neighbours stay neighbours, in the order that the memory of `to` has.
#pragma once

#include "librun/tensor.h"
#include "librun/work/move.h"

namespace sg::cpu {

struct MovePlan {
  int64_t word_bytes = 1, words = 0;  // 1, 2, 4, 8 or 16 bytes each
  work::WordLine to, from;
};

// REQUIRES: one shape and type; elements.
MovePlan plan_move(const Tensor& to, const Tensor& from);

// fn(work) with the work that moves them: for numbers 0 to plan.words - 1.
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
