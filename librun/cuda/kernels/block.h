// How kernels are written: once, for the device and for tests on a CPU.
//
// A kernel is a body for one block of kLanes lanes. Code between two synchronizations goes into `each`; a device runs
// it in all lanes at once, a CPU lane after lane. Values that lanes keep from one `each` to the next are Lanes<T>: a
// register of each thread there, an array here. `reduce` merges them in an order that is the same in both: so both give
// the same bits, as far as the functions of math.h go, which are + - * / and sqrt.
//
//     SG_KERNEL(row_sums, RowArgs) {                        // (Block& block, const RowArgs& args)
//       Lanes<float> part = block.each([&](int lane) { ... });
//       float sum = block.reduce(part, Sum());
//       block.each([&](int lane) { if (lane == 0) ... });
//     }
//
// A lane may read memory written by another only after block.sync() or a reduction, where all lanes synchronize. No
// lane may return early from the body.
//
// Tests have a third mode (SG_LANE_KERNELS, tests/gpu/stub/lanes.h): the device's code on a CPU, where lanes run as far
// ahead of each other as they may. It reveals missing syncs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "librun/work/inline.h"

#ifdef __CUDACC__
#define SG_FN __device__ __forceinline__
#define SG_UNROLL _Pragma("unroll")  // so that a lane's arrays are kept in registers
#define SG_UNROLL_BY_8 _Pragma("unroll 8")
#define SG_ONE_BY_ONE _Pragma("unroll 1")  // so that few registers are used
#else
#include <array>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>
#define SG_FN inline
#define SG_UNROLL
#define SG_UNROLL_BY_8
#define SG_ONE_BY_ONE
#endif

#if defined(__CUDACC__) || defined(SG_LANE_KERNELS)
#define SG_BY_LANES  // each lane executes this code for itself
#endif

namespace sg::cuda {

inline constexpr int kLanes = 256;  // a multiple of 32

#ifdef SG_BY_LANES

template <class T>
using Lanes = T;
template <class T>
using Warps = T;
// Shared memory of a block, visible to all its lanes.
#define SG_SHARED(type, name, count) [[maybe_unused]] alignas(16) __shared__ type name[count]

class Block {
 public:
  static constexpr int kWidth = kLanes;

  SG_FN int64_t index() const { return blockIdx.x; }
  SG_FN int64_t count() const { return gridDim.x; }
  template <class F>
  SG_FN auto each(const F& f) const {
    return f(static_cast<int>(threadIdx.x));
  }
  // f(lane, the lane's value from an earlier `each`).
  template <class T, class F>
  SG_FN void each(const T& kept, const F& f) const {
    f(static_cast<int>(threadIdx.x), kept);
  }
  SG_FN void sync() const { __syncthreads(); }

  template <class T, class Op>
  SG_FN T reduce(T value, const Op& op) const {
    alignas(16) __shared__ unsigned char memory[sizeof(T) * (kLanes / 32)];
    T* warps = reinterpret_cast<T*>(memory);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int width = 16; width > 0; width /= 2) value = op(value, shift_down(value, width));
    __syncthreads();  // the last reduction has been read
    if (lane == 0) warps[warp] = value;
    __syncthreads();
    for (unsigned width = kLanes / 64; width > 0; width /= 2) {
      if (threadIdx.x < width) warps[threadIdx.x] = op(warps[threadIdx.x], warps[threadIdx.x + width]);
      __syncthreads();
    }
    return warps[0];
  }

  // f(warp, the warp's value) for each of the kLanes / 32 warps: see tile.h.
  template <class T, class F>
  SG_FN void warps(T& kept, const F& f) const {
    f(static_cast<int>(threadIdx.x / 32), kept);
  }

  // Applies f to each word.
  template <class T, class F>
  SG_FN static T words_of(T value, const F& f) {
    static_assert(sizeof(T) % 4 == 0);
    struct Words {
      unsigned of[sizeof(T) / 4];
    };
    Words words = __builtin_bit_cast(Words, value);
    for (unsigned& word : words.of) word = f(word);
    return __builtin_bit_cast(T, words);
  }
  template <class T>
  SG_FN static T shift_down(T value, int width) {
    return words_of(value, [&](unsigned word) { return __shfl_down_sync(0xffffffffu, word, width); });
  }
};

#else

template <class T>
using Lanes = std::array<T, kLanes>;
template <class T>
using Warps = std::array<T, kLanes / 32>;
#define SG_SHARED(type, name, count)      \
  std::vector<type> name##_memory(count); \
  type* const name = name##_memory.data()

class Block {
 public:
  static constexpr int kWidth = kLanes;

  Block(int64_t index, int64_t count) : index_(index), count_(count) {}
  int64_t index() const { return index_; }
  int64_t count() const { return count_; }

  template <class F>
  auto each(const F& f) const {
    using T = decltype(f(0));
    if constexpr (std::is_void_v<T>) {
      for (int lane = 0; lane < kLanes; ++lane) f(lane);
    } else {
      Lanes<T> out;
      for (int lane = 0; lane < kLanes; ++lane) out[static_cast<size_t>(lane)] = f(lane);
      return out;
    }
  }
  template <class T, class F>
  void each(const std::array<T, kLanes>& kept, const F& f) const {
    for (int lane = 0; lane < kLanes; ++lane) f(lane, kept[static_cast<size_t>(lane)]);
  }
  void sync() const {}

  // The order of the device: within warps of 32 by halves, then over warps by halves.
  template <class T, class Op>
  T reduce(Lanes<T> values, const Op& op) const {
    constexpr size_t kWarps = kLanes / 32;
    std::array<T, kWarps> warps;
    for (size_t warp = 0; warp < kWarps; ++warp) {
      T* lane = values.data() + warp * 32;
      for (size_t width = 16; width > 0; width /= 2)
        for (size_t i = 0; i < width; ++i) lane[i] = op(lane[i], lane[i + width]);
      warps[warp] = lane[0];
    }
    for (size_t width = kWarps / 2; width > 0; width /= 2)
      for (size_t i = 0; i < width; ++i) warps[i] = op(warps[i], warps[i + width]);
    return warps[0];
  }

  template <class T, class F>
  void warps(std::array<T, kLanes / 32>& kept, const F& f) const {
    for (int warp = 0; warp < kLanes / 32; ++warp) f(warp, kept[static_cast<size_t>(warp)]);
  }

 private:
  int64_t index_, count_;
};

#endif

#if defined(__CUDACC__)
#define SG_KERNEL(name, Args)                                                                                \
  SG_FN void name##_body(::sg::cuda::Block& block, const Args& args);                                        \
  extern "C" __global__ void __launch_bounds__(::sg::cuda::kLanes) name(const __grid_constant__ Args args) { \
    ::sg::cuda::Block block;                                                                                 \
    name##_body(block, args);                                                                                \
  }                                                                                                          \
  SG_FN void name##_body(::sg::cuda::Block& block, const Args& args)

#elif defined(SG_HOST_KERNELS)
// Kernels by name, for the driver's stand-in in tests.
struct HostKernel {
  const char* name;
  size_t args_bytes;
  void (*run)(int64_t blocks, const void* args);
};
inline std::vector<HostKernel>& host_kernels() {
  static std::vector<HostKernel> list;
  return list;
}
struct HostKernelRow {
  explicit HostKernelRow(HostKernel kernel) { host_kernels().push_back(kernel); }
};

// Blocks run in ascending or descending order: none may depend on another.
inline int64_t block_in_turn(int64_t i, int64_t blocks) {
  static const char* order = std::getenv("SG_STUB_BLOCKS");
  return order && std::strcmp(order, "down") == 0 ? blocks - 1 - i : i;
}

template <class Args>
void run_blocks([[maybe_unused]] const char* name, void (*body)(Block&, const Args&), int64_t blocks,
                const void* data) {
  Args args;
  std::memcpy(static_cast<void*>(&args), data, sizeof args);
  for (int64_t turn = 0; turn < blocks; ++turn) {
    const int64_t i = block_in_turn(turn, blocks);
#ifdef SG_LANE_KERNELS
    ::lanes::run_block(i, blocks, name, [&] {
      Block block;
      body(block, args);
    });
#else
    Block block(i, blocks);
    body(block, args);
#endif
  }
}

#define SG_KERNEL(name, Args)                                                                                          \
  inline void name##_body(::sg::cuda::Block& block, const Args& args);                                                 \
  inline const ::sg::cuda::HostKernelRow name##_row({#name, sizeof(Args), [](int64_t blocks, const void* data) {       \
                                                       ::sg::cuda::run_blocks<Args>(#name, name##_body, blocks, data); \
                                                     }});                                                              \
  inline void name##_body([[maybe_unused]] ::sg::cuda::Block& block, const Args& args)
#else
// Code that launches kernels only needs their arguments.
#define SG_KERNEL(name, Args) \
  template <int>              \
  inline void name##_body([[maybe_unused]] ::sg::cuda::Block& block, const Args& args)
#endif

}  // namespace sg::cuda
