// The words of CUDA that kernels are written with (librun/cuda/kernels/block.h), for the text that a device runs: each
// lane of a block is a thread of its own here, with a stack of its own, that is left only where it waits for others.
//
// So one lane runs ahead of the next as far as it may, and one warp of the next: memory that is read by another lane
// without a meeting in between is read too early in one order, or too late in the other. Shuffles and `mma` exchange
// what each lane holds, as PTX says where in a matrix that is.
// Copies that go on meanwhile are done when they are waited for in one order, and at once in the other: what is read
// before a wait, or overwritten before all have read it, shows in one of the two.
//   SG_STUB_LANES=down     the last lane and warp run first; else the first do
// Lanes that wait for what cannot come (one has ended, or waits with its block and not its warp) are said, and end the
// process. Which of two shuffles the lanes of a warp are in is not held against each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

struct LaneIndex {
  unsigned x = 0;
};
inline thread_local LaneIndex threadIdx, blockIdx, gridDim;

#define __shared__ static thread_local  // a stream works on one block at a time, in one thread

namespace lanes {

void run_block(int64_t index, int64_t blocks, const char* kernel, const std::function<void()>& lane);

// Called by lanes.
void meet_block();
unsigned from_lane(unsigned mine, unsigned lane);  // of the same warp: what that lane passed in the same call
void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void load_matrices(const uint16_t* row, bool turned, uint32_t (&out)[4]);
void copy_async(void* to, const void* from, int bytes, int there);
void wait_for_copies();

}  // namespace lanes

inline void __syncthreads() { lanes::meet_block(); }
template <class T>
T __shfl_down_sync(unsigned, T value, int distance) {
  static_assert(sizeof(T) == 4);
  const unsigned lane = threadIdx.x % 32, from = lane + static_cast<unsigned>(distance);
  const unsigned got = lanes::from_lane(__builtin_bit_cast(unsigned, value), from < 32 ? from : lane);
  return __builtin_bit_cast(T, got);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  static_assert(sizeof(T) == 4);
  const unsigned lane = threadIdx.x % 32;
  const unsigned got = lanes::from_lane(__builtin_bit_cast(unsigned, value), lane ^ static_cast<unsigned>(distance));
  return __builtin_bit_cast(T, got);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  static_assert(sizeof(T) == 4);
  const unsigned got = lanes::from_lane(__builtin_bit_cast(unsigned, value), static_cast<unsigned>(lane));
  return __builtin_bit_cast(T, got);
}
inline void __syncwarp() { lanes::from_lane(0, 0); }
inline bool __any_sync(unsigned mask, bool value) {
  unsigned any = value;
  for (int distance = 1; distance < 32; distance *= 2) any |= __shfl_xor_sync(mask, any, distance);
  return any != 0;
}
