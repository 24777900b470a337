// The products of bf16 attention on matrix units (gemm_units.h): AddedSide's interface, of f32 scores.
//
// Scores are sums of 32 numbers of the width each, as Units::whole is. Where scores are a factor they are rounded to
// bf16, as PyTorch's own attention does; sums over keys, or rows, are sums of 32 each, and those of a block are added
// to what is there step by step.
//
// A side is packed when it is first set: a thread that takes one block of rows after another does it once a head.
#pragma once

#include <vector>

#include "librun/cpu/attention_side.h"
#include "librun/cpu/unit_tiles.h"

namespace sg::cpu {

// Whether the units are to multiply, and scores meet rows of type `rows`: a matter of types and widths alone, as bits
// depend on it.
bool multiplies_by_units(const KernelCall& call, const Attention& a, DType rows);

class UnitSide {
 public:
  using Number = float;
  static constexpr int64_t kRows = 128;

  UnitSide(KernelCall& call, SideSizes sizes, SideTypes, SideUses uses);

  void set(const MatrixView& side);
  void meet(const MatrixView& rows, int64_t count);
  void scores(int64_t k, int64_t columns, float* to) const;
  void add_to_rows(const float* scores, int64_t count, int64_t k, int64_t columns, float* to, int64_t step) const;
  void clear_sums() const;
  void add_to_side(const float* scores, int64_t k, int64_t columns) const;
  void store_sums(const MatrixView& to) const;

 private:
  UnitRows tiles(const uint16_t* from, int64_t tile_step, int64_t tile, int64_t end) const;

  SideUses uses_;
  SideSizes sizes_;
  int64_t width_tiles_, width_steps_, key_tiles_, key_steps_;
  int64_t count_ = 0;
  const std::byte* set_ = nullptr;  // the side that is packed
  std::vector<int64_t> steps_;      // offsets of tiles that follow each other
  // Packed, [tile of lines, step] each: the side with keys as lines, and with its width as lines; rows as lines, and
  // with their width as lines.
  uint16_t *by_key_ = nullptr, *by_width_ = nullptr, *rows_ = nullptr, *turned_ = nullptr;
  uint16_t* rounded_ = nullptr;  // scores
  float* sums_ = nullptr;        // [pair of tiles of width, pair of tiles of keys, 2, 2, line of width, key]
  float* stored_ = nullptr;      // [kUnitLines, width]
};

}  // namespace sg::cpu
