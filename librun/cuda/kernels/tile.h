// Products of small matrices by warps: rows of a warp times a matrix in the block's shared memory, bf16 in, f32 sums.
//
// A Tile<R, N> is a 16 R x 8 N matrix of one warp; on a device it is distributed over the lanes as mma.m16n8k16
// requires: lane l has rows l/4 and l/4 + 8 of every 16, columns 2 (l % 4) and the next one of every 8. On a CPU it is
// a plain array.
//
// Shared  Rows of operands are `step` elements apart, an odd multiple of 8: a lane reads 16 bytes of a row, and the 8
//         lanes that read at once have no bank conflicts.
#pragma once

#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

inline constexpr int kTileRows = 16, kWarps = kLanes / 32;

// The layout of an operand: its rows as rows, or as columns.
enum class Lies : uint8_t { straight, turned };

#ifdef SG_BY_LANES

SG_FN int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }
SG_FN int lane_row() { return lane_of_warp() / 4; }
SG_FN int lane_column() { return 2 * (lane_of_warp() % 4); }

// Two numbers as adjacent bf16 in memory, rounded to nearest even.
SG_FN uint32_t brain_pair(float low, float high) {
#ifdef __CUDACC__
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return to_brain(low) | static_cast<uint32_t>(to_brain(high)) << 16;
#endif
}

// 16 R x 16 of the left operand.
template <int R>
struct LeftTile {
  uint32_t v[R][4];
};

template <int R, int N>
struct Tile {
  float v[R][N][4];

  SG_FN void fill(float x) {
    each([&](int, int, float& y) { y = x; });
  }
  // f(row, column, number) for the elements of this lane.
  template <class F>
  SG_FN void each(const F& f) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          f(r * kTileRows + lane_row() + i / 2 * 8, n * 8 + lane_column() + i % 2, v[r][n][i]);
  }
  // f(row, column, number, next) for pairs of adjacent columns, of which the first is even.
  template <class F>
  SG_FN void each_two(const F& f) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          f(r * kTileRows + lane_row() + i / 2 * 8, n * 8 + lane_column(), v[r][n][i], v[r][n][i + 1]);
  }
  // f(row, column, both): the bf16 numbers of that column and the next, as stored in memory.
  template <class F>
  SG_FN void each_pair(const F& f) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          f(r * kTileRows + lane_row() + i / 2 * 8, n * 8 + lane_column(), brain_pair(v[r][n][i], v[r][n][i + 1]));
  }
  // Columns 16 k to 16 k + 15 as a left operand, rounded to bf16.
  SG_FN LeftTile<R> left(int k) const {
    LeftTile<R> out;
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* two = v[r][2 * k + i / 2] + i % 2 * 2;
        out.v[r][i] = brain_pair(two[0], two[1]);
      }
    return out;
  }
};

// A number for each of a warp's rows: a lane holds those of its own.
template <int R>
struct RowNumbers {
  float v[2 * R];
  SG_FN void fill(float x) {
#pragma unroll
    for (int i = 0; i < 2 * R; ++i) v[i] = x;
  }
  SG_FN float& at(int row) { return v[row / 8]; }
};

// Four lanes share a row: combines their parts with op.
template <int R, class Op>
SG_FN void join_lanes(RowNumbers<R>& x, const Op& op) {
#pragma unroll
  for (int i = 0; i < 2 * R; ++i)
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2)
      x.v[i] = op(x.v[i], __shfl_xor_sync(0xffffffffu, x.v[i], distance));
}

// Whether it holds for any lane of the warp: so that all take the same branch.
SG_FN bool holds_for_any(bool x) { return __any_sync(0xffffffffu, x); }

// Whether f(i) holds for any i below kCount, the same in all lanes.
template <int kCount, class F>
SG_FN bool holds_for_any_of(const F& f) {
  bool any = false;
#pragma unroll
  for (int i = lane_of_warp(); i < kCount; i += 32) any |= f(i);
  return holds_for_any(any);
}

// f(row) wherever a row's number is held.
template <int R, class F>
SG_FN void each_row_kept(const F& f) {
#pragma unroll
  for (int i = 0; i < 2 * R; ++i) f(lane_row() + 8 * i);
}
// f(row) once for each row of the warp.
template <int R, class F>
SG_FN void each_row(const F& f) {
  if (lane_column() == 0) each_row_kept<R>(f);
}

// What warp `warp` keeps.
template <class T>
SG_FN T& of_warp(T& kept, int) {
  return kept;
}

// Four matrices of 8 x 8 in shared memory: lane l names row l % 8 of matrix l / 8, and gets of each matrix what mma
// wants of an operand, or of one that is turned.
template <Lies kLies>
SG_FN void load_matrices(const uint16_t* row, uint32_t (&out)[4]) {
#ifdef __CUDACC__
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kLies == Lies::straight)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
#else
  ::lanes::load_matrices(row, kLies == Lies::turned, out);
#endif
}

// Volatile: it must not be moved to where only some lanes of the warp arrive.
SG_FN void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  ::lanes::mma_16x8x16(c, a, b0, b1);
#endif
}

// Rows of bf16 numbers from anywhere: pair(row, column) returns those at column and column + 1.
template <int R, class Pair>
SG_FN LeftTile<R> load_left(const Pair& pair) {
  LeftTile<R> out;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) out.v[r][i] = pair(r * kTileRows + lane_row() + i % 2 * 8, lane_column() + i / 2 * 8);
  return out;
}

// t *= factor, rounded to bf16: exact for a power of two.
template <int R>
SG_FN void scale_left(LeftTile<R>& t, float factor) {
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t both = t.v[r][i];
      t.v[r][i] = brain_pair(number(both << 16) * factor, number(both & 0xFFFF0000u) * factor);
    }
}

// Rows `row` to row + 16 R - 1 of shared memory, columns k to k + 15.
template <Lies kLies, int R>
SG_FN LeftTile<R> shared_left(const uint16_t* memory, int step, int row, int k) {
  const int matrix = lane_of_warp() / 8, line = lane_of_warp() % 8;
  LeftTile<R> out;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int down = row + r * kTileRows + matrix % 2 * 8, along = k + matrix / 2 * 8;
    load_matrices<kLies>(
        kLies == Lies::straight ? memory + (down + line) * step + along : memory + (along + line) * step + down,
        out.v[r]);
  }
  return out;
}

// t += a @ b: b's column j is row `first + j` of the memory, from k on; or, if turned, column `first + j`, from row k
// on.
template <Lies kLies, int R, int N>
SG_FN void multiply_tile(Tile<R, N>& t, const LeftTile<R>& a, const uint16_t* memory, int step, int k, int first = 0) {
  static_assert(N % 2 == 0);
  const int matrix = lane_of_warp() / 8, line = lane_of_warp() % 8;
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    const int across = first + (n + matrix / 2) * 8, along = k + matrix % 2 * 8;
    uint32_t b[4];
    load_matrices<kLies>(
        kLies == Lies::straight ? memory + (across + line) * step + along : memory + (along + line) * step + across, b);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      mma(t.v[r][n], a.v[r], b[0], b[1]);
      mma(t.v[r][n + 1], a.v[r], b[2], b[3]);
    }
  }
}

#else

template <int R>
struct LeftTile {
  float v[R * kTileRows][16];
};

template <int R, int N>
struct Tile {
  float v[R * kTileRows][8 * N];

  void fill(float x) {
    each([&](int, int, float& y) { y = x; });
  }
  template <class F>
  void each(const F& f) {
    for (int row = 0; row < R * kTileRows; ++row)
      for (int column = 0; column < 8 * N; ++column) f(row, column, v[row][column]);
  }
  template <class F>
  void each_two(const F& f) {
    for (int row = 0; row < R * kTileRows; ++row)
      for (int column = 0; column < 8 * N; column += 2) f(row, column, v[row][column], v[row][column + 1]);
  }
  template <class F>
  void each_pair(const F& f) {
    for (int row = 0; row < R * kTileRows; ++row)
      for (int column = 0; column < 8 * N; column += 2)
        f(row, column, to_brain(v[row][column]) | static_cast<uint32_t>(to_brain(v[row][column + 1])) << 16);
  }
  LeftTile<R> left(int k) const {
    LeftTile<R> out;
    for (int row = 0; row < R * kTileRows; ++row)
      for (int i = 0; i < 16; ++i) out.v[row][i] = from_brain(to_brain(v[row][16 * k + i]));
    return out;
  }
};

template <int R>
struct RowNumbers {
  float v[R * kTileRows];
  void fill(float x) {
    for (float& y : v) y = x;
  }
  float& at(int row) { return v[row]; }
};

template <int R, class Op>
void join_lanes(RowNumbers<R>&, const Op&) {}
inline bool holds_for_any(bool x) { return x; }
template <int kCount, class F>
bool holds_for_any_of(const F& f) {
  bool any = false;
  for (int i = 0; i < kCount; ++i) any |= f(i);
  return any;
}

template <int R, class F>
void each_row_kept(const F& f) {
  for (int row = 0; row < R * kTileRows; ++row) f(row);
}
template <int R, class F>
void each_row(const F& f) {
  each_row_kept<R>(f);
}

template <class T>
T& of_warp(std::array<T, kWarps>& kept, int warp) {
  return kept[static_cast<size_t>(warp)];
}

template <int R, class Pair>
LeftTile<R> load_left(const Pair& pair) {
  LeftTile<R> out;
  for (int row = 0; row < R * kTileRows; ++row)
    for (int i = 0; i < 16; i += 2) {
      const uint32_t both = pair(row, i);
      out.v[row][i] = from_brain(static_cast<uint16_t>(both));
      out.v[row][i + 1] = from_brain(static_cast<uint16_t>(both >> 16));
    }
  return out;
}

template <int R>
void scale_left(LeftTile<R>& t, float factor) {
  for (auto& row : t.v)
    for (float& x : row) x = from_brain(to_brain(x * factor));
}

template <Lies kLies, int R>
LeftTile<R> shared_left(const uint16_t* memory, int step, int row, int k) {
  LeftTile<R> out;
  for (int r = 0; r < R * kTileRows; ++r)
    for (int i = 0; i < 16; ++i)
      out.v[r][i] =
          from_brain(kLies == Lies::straight ? memory[(row + r) * step + k + i] : memory[(k + i) * step + row + r]);
  return out;
}

template <Lies kLies, int R, int N>
void multiply_tile(Tile<R, N>& t, const LeftTile<R>& a, const uint16_t* memory, int step, int k, int first = 0) {
  for (int column = 0; column < 8 * N; ++column) {
    float b[16];
    for (int i = 0; i < 16; ++i)
      b[i] = from_brain(kLies == Lies::straight ? memory[(first + column) * step + k + i]
                                                : memory[(k + i) * step + first + column]);
    for (int row = 0; row < R * kTileRows; ++row) {
      float sum = t.v[row][column];
      for (int i = 0; i < 16; ++i) sum += a.v[row][i] * b[i];
      t.v[row][column] = sum;
    }
  }
}

#endif

// Folds the columns of a tile into the numbers of its rows; the parts of a row held by different lanes are still to be
// joined.
template <int R, int N, class Op>
SG_FN void fold_columns(RowNumbers<R>& into, Tile<R, N>& t, const Op& op) {
  t.each([&](int row, int, float& x) { into.at(row) = op(into.at(row), x); });
}

// a *= b, element by element.
template <int R, int N>
SG_FN void times(Tile<R, N>& a, const Tile<R, N>& b) {
#ifdef SG_BY_LANES
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) a.v[r][n][i] *= b.v[r][n][i];
#else
  a.each([&](int row, int column, float& x) { x *= b.v[row][column]; });
#endif
}

}  // namespace sg::cuda
