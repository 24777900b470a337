// A warp of a block as a block of its own, with 32 lanes and the interface of block.h, so that code written for a Team
// runs on either. Its lanes synchronize without the other warps, which suits short rows.
//
//     for_warps(block, [&](const Warp& team) {
//       for (int64_t row = team.index(); row < rows; row += team.count()) sum_row(team, row);
//     });
//
// Features of blocks only (SG_SHARED) are not available inside. `reduce` merges as within a warp of block.h.
#pragma once

#include "librun/cuda/kernels/block.h"

namespace sg::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr int64_t kWarpRow = 1024;  // elements of a row: longer ones get a block

#ifdef SG_BY_LANES

class Warp {
 public:
  static constexpr int kWidth = kWarpLanes;
  template <class T>
  using Kept = T;

  SG_FN int64_t index() const { return int64_t{blockIdx.x} * (kLanes / kWidth) + threadIdx.x / kWidth; }
  SG_FN int64_t count() const { return int64_t{gridDim.x} * (kLanes / kWidth); }
  template <class F>
  SG_FN auto each(const F& f) const {
    return f(static_cast<int>(threadIdx.x % kWidth));
  }
  // f(lane, the lane's value of each).
  template <class F, class... T>
  SG_FN auto each_of(const F& f, T&... kept) const {
    return f(static_cast<int>(threadIdx.x % kWidth), kept...);
  }
  SG_FN void sync() const { __syncwarp(); }

  template <class T, class Op>
  SG_FN T reduce(T value, const Op& op) const {
    for (int width = kWidth / 2; width > 0; width /= 2) value = op(value, Block::shift_down(value, width));
    return Block::words_of(value, [](unsigned word) { return __shfl_sync(0xffffffffu, word, 0); });
  }
};

template <class F>
SG_FN void for_warps(const Block&, const F& f) {
  f(Warp());
}

#else

class Warp {
 public:
  static constexpr int kWidth = kWarpLanes;
  template <class T>
  using Kept = std::array<T, kWidth>;

  Warp(const Block& block, int number) : block_(block), number_(number) {}
  int64_t index() const { return block_.index() * (kLanes / kWidth) + number_; }
  int64_t count() const { return block_.count() * (kLanes / kWidth); }
  template <class F, class... T>
  auto each_of(const F& f, std::array<T, kWidth>&... kept) const {
    using Result = decltype(f(0, kept[0]...));
    if constexpr (std::is_void_v<Result>) {
      for (int lane = 0; lane < kWidth; ++lane) f(lane, kept[static_cast<size_t>(lane)]...);
    } else {
      Kept<Result> out;
      for (int lane = 0; lane < kWidth; ++lane)
        out[static_cast<size_t>(lane)] = f(lane, kept[static_cast<size_t>(lane)]...);
      return out;
    }
  }
  template <class F>
  auto each(const F& f) const {
    return each_of(f);
  }
  void sync() const {}

  template <class T, class Op>
  T reduce(Kept<T> values, const Op& op) const {
    for (size_t width = kWidth / 2; width > 0; width /= 2)
      for (size_t i = 0; i < width; ++i) values[i] = op(values[i], values[i + width]);
    return values[0];
  }

 private:
  const Block& block_;
  int number_;
};

template <class F>
void for_warps(const Block& block, const F& f) {
  for (int warp = 0; warp < kLanes / kWarpLanes; ++warp) f(Warp(block, warp));
}

#endif

}  // namespace sg::cuda
