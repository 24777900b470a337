// One side of a head's attention: its keys, which meet queries, or its values, which meet gradients of the output.
//
//     scores       rows side^T               [count, columns], rows kPackedRow apart: a packed A for add_to_rows
//     add_to_rows  to += scores side         [count, width]
//     add_to_side  sums += scores^T rows     [keys, width], kept until they are stored
//
// Here they are products by multiply-adds; UnitSide (attention_units.h) has the same interface. A thread has its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "librun/cpu/attention.h"
#include "librun/cpu/gemm_block.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/gemm_tile.h"
#include "librun/kernel.h"

namespace sg::cpu {

// Which of the products a side is asked for.
struct SideUses {
  bool scores = false, to_rows = false, to_side = false;
};

struct SideSizes {
  int64_t keys, width;
};

struct SideTypes {
  DType side, rows;  // of the side, and of the rows that it meets
};

template <class T>
class AddedSide {
 public:
  using Number = T;
  static constexpr int64_t kRows = 112;  // at most, in a block: a multiple of a tile's

  AddedSide(KernelCall& call, SideSizes sizes, SideTypes types, SideUses uses)
      : sizes_(sizes),
        kernels_(tile_kernels<T>(best_isa())),
        starts_{TileStart::zero, call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add},
        sums_step_(padded_columns(sizes.width)) {
    Scratch& s = call.scratch();
    const bool pairs = std::is_same_v<T, float> && types.side == DType::bf16 && types.rows == DType::bf16 &&
                       has_bf16_pairs() && call.numerics() == Numerics::fast;
    panel_ = s.take<T>(kPanelSize);
    if (uses.scores && pairs)
      pairs_ = s.take<Bf16Pair>(packed_a_size<Bf16Pair>(kRows, sizes.width)),
      pair_panel_ = s.take<Bf16Pair>(kPanelSize);
    else if (uses.scores) numbers_ = s.take<T>(packed_a_size<T>(kRows, sizes.width));
    if (!uses.to_side) return;
    turned_ = s.take<T>(packed_a_size(kKeyBlock, kRows));
    sums_ = s.take<T>(sizes.keys * sums_step_);
  }

  // The keys or values, [keys, width].
  void set(const MatrixView& side) { side_ = side; }

  // The rows that come next, [count, width].
  void meet(const MatrixView& rows, int64_t count) {
    rows_ = rows, count_ = count;
    if (pairs_) pack_a(tile_kernels<Bf16Pair>(best_isa()), rows, count, sizes_.width, pairs_);
    else if (numbers_) pack_a(kernels_, rows, count, sizes_.width, numbers_);
  }

  void scores(int64_t k, int64_t columns, T* to) const {
    const MatrixView right = side_.at(k, 0).transposed();
    const PackedSums<T> sums{to, kPackedRow, true, starts_};
    if constexpr (std::is_same_v<T, float>)
      if (pairs_)
        return multiply_packed(tile_kernels<Bf16Pair>(best_isa()), {pairs_, count_, right, columns, sizes_.width}, sums,
                               pair_panel_);
    multiply_packed(kernels_, {numbers_, count_, right, columns, sizes_.width}, sums, panel_);
  }

  // Rows of `to` have room for padded_columns(width).
  void add_to_rows(const T* scores, int64_t count, int64_t k, int64_t columns, T* to, int64_t step) const {
    multiply_packed(kernels_, {scores, count, side_.at(k, 0), sizes_.width, columns}, onto(to, step), panel_);
  }

  void clear_sums() const { std::fill_n(sums_, sizes_.keys * sums_step_, T(0)); }
  void add_to_side(const T* scores, int64_t k, int64_t columns) const {
    const MatrixView v{reinterpret_cast<const std::byte*>(scores), kTileType<T>, kPackedRow, 1};
    pack_a(kernels_, v.transposed(), columns, count_, turned_);
    multiply_packed(kernels_, {turned_, columns, rows_, sizes_.width, count_}, onto(sums_ + k * sums_step_, sums_step_),
                    panel_);
  }
  void store_sums(const MatrixView& to) const { store_block(sums_, sums_step_, to, sizes_.keys, sizes_.width); }

 private:
  PackedSums<T> onto(T* sums, int64_t step) const { return {sums, step, true, {starts_.later, starts_.later}}; }

  SideSizes sizes_;
  const TileKernels<T>& kernels_;
  Starts starts_;
  MatrixView side_, rows_;
  int64_t count_ = 0, sums_step_;
  T* numbers_ = nullptr;                               // rows, packed for scores
  Bf16Pair *pairs_ = nullptr, *pair_panel_ = nullptr;  // the same where the CPU multiplies pairs, with their panel
  T *panel_ = nullptr, *turned_ = nullptr;             // a panel of B; scores^T, packed
  T* sums_ = nullptr;                                  // [keys, sums_step_]
};

}  // namespace sg::cpu
