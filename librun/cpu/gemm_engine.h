// What packs and multiplies the blocks of a matrix product: fused multiply-adds, or matrix units.
//
// Both work on panels of columns() columns. Nothing that they do depends on how a product was cut into rows and
// columns.
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
  bool swapped = false;     // a and b are what was b^T and a^T
  bool direct = false;      // sums may lie in `out`
  bool added = false;       // they are added to what lies there: direct, and k is at most the engine's kAddedDepth
  bool plain_self = false;  // direct, and the engine adds `self` to them: rows of the same numbers, not scaled
};

// Rows [i0, i1) and columns [c0, c1) of a job, with where its sums are.
template <class T>
struct GemmBlock {
  const GemmJob* job;
  int64_t i0, i1, c0, c1;
  T* sums;
  int64_t sums_step;
  int64_t rows() const { return i1 - i0; }
};

struct GemmDepth {  // of k
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

struct GemmColumns {  // of a block
  int64_t begin, end;
  int64_t then;  // where the same thread probably goes on; c1 or more: nowhere
  int64_t size() const { return end - begin; }
};

// Sums are gemm_tile.h's, on every instruction set.
template <class P>  // float, double, Bf16Pair
class FmaEngine {
 public:
  using Sum = typename Packing<P>::Sum;
  using Packed = P;
  static constexpr int64_t kDepth = kSumBlock;       // k packed at a time
  static constexpr int64_t kAddedDepth = kSumBlock;  // k of one sum
  static constexpr bool kAddsSelf = false;

  FmaEngine(Isa isa, bool chain) : kernels_(tile_kernels<P>(isa)), chain_(chain) {}
  int64_t columns() const { return kernels_.columns; }
  int64_t row_tile() const { return kernels_.rows; }
  int64_t row_grain() const { return 1; }                  // rows of a task are a multiple of it
  int64_t row_limit(int64_t k) const;                      // rows packed at a time
  int64_t row_groups(int64_t rows) const { return rows; }  // that are packed one by one
  int64_t packed_size(int64_t rows, int64_t depth) const { return packed_a_size<P>(rows, depth); }
  int64_t panel_size(int64_t) const { return kPanelSize; }
  void pack_rows(const GemmBlock<Sum>& block, GemmDepth depth, int64_t begin, int64_t end, Packed* a) const;
  // One row of A, at most kSumBlock deep.
  void pack_row(const GemmJob& job, int64_t row, GemmDepth depth, Packed* a) const;
  // Sums over `depth`. REQUIRES: columns.begin at the start of a panel
  void multiply(const GemmBlock<Sum>& block, GemmDepth depth, GemmColumns columns, const Packed* a,
                Packed* panel) const;

 private:
  const TileKernels<P>& kernels_;
  bool chain_;
};

// Of f32. Sums are gemm_units.h's. One that is NaN is taken again from multiply-adds: infinities have no parts.
class UnitEngine {
 public:
  using Sum = float;
  using Packed = uint16_t;
  static constexpr int64_t kDepth = 3 * kSumBlock;  // sums start anew for each
  static constexpr int64_t kAddedDepth = kDepth;
  static constexpr bool kAddsSelf = true;

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
  static int64_t copy_size(int64_t depth) {  // of the panel after it
    return depth * kUnitColumns * static_cast<int64_t>(sizeof(float) / sizeof(Packed));
  }
  UnitProduct product(int64_t depth) const {
    return {units_, nullptr, nullptr, (depth + kUnitDepth - 1) / kUnitDepth, false};
  }
  struct Pass {  // over one depth
    UnitProduct product;
    bool last;         // of the sums
    bool add, stream;  // UnitSums'
  };
  void pack_panel(const MatrixView& b, int64_t depth, int64_t columns, Packed* panel) const;
  void multiply_panel(const GemmBlock<float>& block, const Pass& pass, int64_t j, int64_t columns,
                      Prefetch* next) const;
  // The panel at *b is brought nearer, or into `copy`, which *b is then.
  Prefetch bring(MatrixView* b, int64_t depth, int64_t columns, float* copy) const;
  // Only brought nearer: the panel at column j, if there is one.
  static Prefetch look_ahead(const GemmBlock<float>& block, GemmDepth depth, int64_t j);
  void repair(const GemmBlock<float>& block, int64_t first, int64_t rows, int64_t j, int64_t columns) const;
  void add_repaired(const GemmBlock<float>& block, const UnitProduct& whole, int64_t first, int64_t rows, int64_t j,
                    int64_t columns) const;

  Units units_;
};

}  // namespace sg::cpu
