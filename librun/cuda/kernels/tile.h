// Products of small matrices by warps: 16 rows of a warp times columns in the block's shared memory, bf16 in, f32
// summed.
//
// A Tile<N> is 16 x 8N numbers of one warp; on a device they are spread over its lanes as mma.m16n8k16 has them: lane l
// has rows l/4 and l/4 + 8, columns 2 (l % 4) and the next one of every 8. A processor has them as they are.
#pragma once

#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

inline constexpr int kTileRows = 16, kWarps = kLanes / 32;

SG_FN uint32_t pair_of(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

// 16 x 16 of the left operand.
#ifdef SG_BY_LANES

struct LeftTile {
  uint32_t v[4];
};

SG_FN int lane_row() { return static_cast<int>(threadIdx.x % 32 / 4); }
SG_FN int lane_column() { return 2 * static_cast<int>(threadIdx.x % 4); }

template <int N>
struct Tile {
  float v[N][4];

  SG_FN void fill(float x) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) v[n][i] = x;
  }
  // f(row, column, number) for the numbers of this lane.
  template <class F>
  SG_FN void each(const F& f) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) f(lane_row() + i / 2 * 8, n * 8 + lane_column() + i % 2, v[n][i]);
  }
  // Columns 16 k to 16 k + 15 as a left operand, rounded to bf16.
  SG_FN LeftTile left(int k) const {
    const float(&a)[4] = v[2 * k], (&b)[4] = v[2 * k + 1];
    return {{pair_of(to_brain(a[0]), to_brain(a[1])), pair_of(to_brain(a[2]), to_brain(a[3])),
             pair_of(to_brain(b[0]), to_brain(b[1])), pair_of(to_brain(b[2]), to_brain(b[3]))}};
  }
};

// A number for each of a warp's 16 rows: a lane keeps those of its two.
struct RowNumbers {
  float v[2];
  SG_FN void fill(float x) { v[0] = v[1] = x; }
  SG_FN float& at(int row) { return v[row / 8]; }
};

// op over the columns of each row.
template <int N, class Op>
SG_FN RowNumbers reduce_tile(Tile<N>& t, float start, const Op& op) {
  RowNumbers out;
  out.fill(start);
  t.each([&](int row, int, float& x) { out.at(row) = op(out.at(row), x); });
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2)
      out.v[i] = op(out.v[i], __shfl_xor_sync(0xffffffffu, out.v[i], distance));
  return out;
}

// What warp `warp` keeps.
template <class T>
SG_FN T& of_warp(T& kept, int) {
  return kept;
}

// f(row) once for each row of the warp.
template <class F>
SG_FN void each_row(const F& f) {
  if (threadIdx.x % 4 == 0) f(lane_row()), f(lane_row() + 8);
}
// f(row) wherever a row's number is kept.
template <class F>
SG_FN void each_row_kept(const F& f) {
  f(lane_row()), f(lane_row() + 8);
}

// Rows of bf16 numbers `step` apart: pair(row, column) gives those at column and column + 1.
template <class Pair>
SG_FN LeftTile load_left(const Pair& pair) {
  const int r = lane_row(), c = lane_column();
  return {{pair(r, c), pair(r + 8, c), pair(r, c + 8), pair(r + 8, c + 8)}};
}

SG_FN void mma(float (&c)[4], const LeftTile& a, uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b0), "r"(b1));
#else
  ::lanes::mma_16x8x16(c, a.v, b0, b1);
#endif
}

// t[:, 8n ..] += a @ b, b's column j being the row `first + 8 n + j` of bf16 numbers at `memory`, `step` apart, from
// `k` on.
template <int N>
SG_FN void multiply_tile(Tile<N>& t, const LeftTile& a, const uint16_t* memory, int step, int k) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const uint16_t* at = memory + (n * 8 + lane_row()) * step + k + lane_column();
    const uint32_t b0 = *reinterpret_cast<const uint32_t*>(at), b1 = *reinterpret_cast<const uint32_t*>(at + 8);
    mma(t.v[n], a, b0, b1);
  }
}

#else

struct LeftTile {
  float v[16][16];
};

template <int N>
struct Tile {
  float v[kTileRows][8 * N];

  void fill(float x) {
    for (auto& row : v)
      for (float& y : row) y = x;
  }
  template <class F>
  void each(const F& f) {
    for (int row = 0; row < kTileRows; ++row)
      for (int column = 0; column < 8 * N; ++column) f(row, column, v[row][column]);
  }
  LeftTile left(int k) const {
    LeftTile out;
    for (int row = 0; row < kTileRows; ++row)
      for (int i = 0; i < 16; ++i) out.v[row][i] = from_brain(to_brain(v[row][16 * k + i]));
    return out;
  }
};

struct RowNumbers {
  float v[kTileRows];
  void fill(float x) {
    for (float& y : v) y = x;
  }
  float& at(int row) { return v[row]; }
};

template <int N, class Op>
RowNumbers reduce_tile(Tile<N>& t, float start, const Op& op) {
  RowNumbers out;
  out.fill(start);
  t.each([&](int row, int, float& x) { out.at(row) = op(out.at(row), x); });
  return out;
}

template <class T>
T& of_warp(std::array<T, kWarps>& kept, int warp) {
  return kept[static_cast<size_t>(warp)];
}

template <class F>
void each_row(const F& f) {
  for (int row = 0; row < kTileRows; ++row) f(row);
}
template <class F>
void each_row_kept(const F& f) {
  for (int row = 0; row < kTileRows; ++row) f(row);
}

template <class Pair>
LeftTile load_left(const Pair& pair) {
  LeftTile out;
  for (int row = 0; row < kTileRows; ++row)
    for (int i = 0; i < 16; i += 2) {
      const uint32_t both = pair(row, i);
      out.v[row][i] = from_brain(static_cast<uint16_t>(both));
      out.v[row][i + 1] = from_brain(static_cast<uint16_t>(both >> 16));
    }
  return out;
}

template <int N>
void multiply_tile(Tile<N>& t, const LeftTile& a, const uint16_t* memory, int step, int k) {
  for (int row = 0; row < kTileRows; ++row)
    for (int column = 0; column < 8 * N; ++column) {
      float sum = t.v[row][column];
      for (int i = 0; i < 16; ++i) sum += a.v[row][i] * from_brain(memory[column * step + k + i]);
      t.v[row][column] = sum;
    }
}

#endif

// a *= b * by, number by number.
template <int N>
SG_FN void times(Tile<N>& a, Tile<N>& b, float by) {
#ifdef SG_BY_LANES
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) a.v[n][i] *= b.v[n][i] * by;
#else
  a.each([&](int row, int column, float& x) { x *= b.v[row][column] * by; });
#endif
}

}  // namespace sg::cuda
