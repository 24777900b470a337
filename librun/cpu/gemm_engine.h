// Engines that pack and multiply the blocks of a matrix product: fused multiply-adds, or matrix units.
//
// Both work on panels of columns() columns. Their results do not depend on how a product is cut into rows and columns.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_block.h"
#include "librun/cpu/gemm_units.h"

namespace sg::cpu {

// One product of two matrices.
struct GemmJob {
  int64_t m = 0, n = 0, k = 0;
  MatrixView a, b, out, self;  // self.data null: none
  double alpha = 1, beta = 0;
  Isa isa = Isa::plain;
  bool swapped = false;     // a and b stand for b^T and a^T
  bool direct = false;      // sums may be computed in `out`
  bool added = false;       // they are added to `out`: direct, and k is at most the engine's kAddedDepth
  bool plain_self = false;  // direct, and the engine adds `self`: rows of the same type, unscaled
  bool rounded = false;     // the engine adds `self`, and rounds sums to `out`: both bf16 in rows, unscaled
};

// Rows [i0, i1) and columns [c0, c1) of a job, and the location of its sums.
template <class T>
struct GemmBlock {
  const GemmJob* job;
  int64_t i0, i1, c0, c1;
  T* sums;
  int64_t sums_step;
  int64_t rows() const { return i1 - i0; }
};

struct GemmDepth {  // range of k
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

struct GemmColumns {  // within a block
  int64_t begin, end;
  int64_t then;  // where the same thread probably continues; c1 or more: nowhere
  int64_t size() const { return end - begin; }
};

// Sums are those of gemm_tile.h, on every instruction set.
template <class P>  // float, double, Bf16Pair
class FmaEngine {
 public:
  using Sum = typename Packing<P>::Sum;
  using Packed = P;
  static constexpr int64_t kDepth = kSumBlock;       // k packed at a time
  static constexpr int64_t kAddedDepth = kSumBlock;  // k of one sum
  static constexpr bool kAddsSelf = false, kRounds = false;

  FmaEngine(Isa isa, bool chain) : kernels_(tile_kernels<P>(isa)), chain_(chain) {}
  int64_t columns() const { return kernels_.columns; }
  int64_t row_tile() const { return kernels_.rows; }
  int64_t row_grain() const { return 1; }                  // rows of a task are a multiple of it
  int64_t row_limit(int64_t k) const;                      // rows packed at a time
  int64_t row_groups(int64_t rows) const { return rows; }  // groups of rows that are packed separately
  int64_t packed_size(int64_t rows, int64_t depth) const { return packed_a_size<P>(rows, depth); }
  int64_t panel_size(int64_t) const { return kPanelSize; }
  void pack_rows(const GemmBlock<Sum>& block, GemmDepth depth, int64_t begin, int64_t end, Packed* a) const;
  // One row of A, at most kSumBlock deep.
  void pack_row(const GemmJob& job, int64_t row, GemmDepth depth, Packed* a) const;
  // Sums over `depth`. REQUIRES: columns.begin starts a panel
  void multiply(const GemmBlock<Sum>& block, GemmDepth depth, GemmColumns columns, const Packed* a,
                Packed* panel) const;

 private:
  const TileKernels<P>& kernels_;
  bool chain_;
};

// For f32 and bf16. Sums are those of gemm_units.h. A NaN of f32 is recomputed with multiply-adds, because infinities
// have no parts.
class UnitEngine {
 public:
  using Sum = float;
  using Packed = uint16_t;
  static constexpr int64_t kDepth = 3 * kSumBlock;  // sums are started anew for each
  static constexpr int64_t kAddedDepth = kDepth;
  static constexpr bool kAddsSelf = true, kRounds = true;

  // REQUIRES: has_units(units)
  explicit UnitEngine(Units units) : units_(units) {}
  int64_t columns() const { return kUnitColumns; }
  int64_t row_tile() const { return kUnitLines; }
  int64_t row_grain() const { return 2 * kUnitLines; }
  int64_t row_limit(int64_t k) const;
  int64_t row_groups(int64_t rows) const { return (rows + kUnitLines - 1) / kUnitLines; }
  int64_t packed_size(int64_t rows, int64_t depth) const { return row_groups(rows) * product(depth).row_tile_size(); }
  int64_t panel_size(int64_t depth) const { return product(depth).panel_size() + copy_size(depth); }
  void pack_rows(const GemmBlock<float>& block, GemmDepth depth, int64_t begin, int64_t end, Packed* a) const;
  void multiply(const GemmBlock<float>& block, GemmDepth depth, GemmColumns columns, const Packed* a,
                Packed* panel) const;

 private:
  static int64_t copy_size(int64_t depth) {  // of the next panel
    return depth * kUnitColumns * static_cast<int64_t>(sizeof(float) / sizeof(Packed));
  }
  UnitProduct product(int64_t depth) const {
    return {units_, nullptr, nullptr, (depth + kUnitDepth - 1) / kUnitDepth, false};
  }
  struct Pass {  // over one depth
    UnitProduct product;
    bool last;         // completes the sums
    bool add, stream;  // see UnitSums
  };
  void pack_panel(const MatrixView& b, int64_t depth, int64_t columns, Packed* panel) const;
  // Where complete sums at row i and column j of the block go.
  static void finish(const GemmBlock<float>& block, int64_t i, int64_t j, UnitSums* to);
  void multiply_panel(const GemmBlock<float>& block, const Pass& pass, int64_t j, int64_t columns,
                      Prefetch* next) const;
  // Prefetches the panel at *b, or copies it to `copy`, to which *b then points.
  Prefetch bring(MatrixView* b, int64_t depth, int64_t columns, float* copy) const;
  // Prefetches the panel at column j, if there is one.
  static Prefetch look_ahead(const GemmBlock<float>& block, GemmDepth depth, int64_t j);
  void repair(const GemmBlock<float>& block, int64_t first, int64_t rows, int64_t j, int64_t columns) const;
  void add_repaired(const GemmBlock<float>& block, const UnitProduct& whole, int64_t first, int64_t rows, int64_t j,
                    int64_t columns) const;

  Units units_;
};

}  // namespace sg::cpu
