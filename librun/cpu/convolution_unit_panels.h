// The places of a box for matrix units: panels of adjacent positions in the planes, which go on across the ends of
// lines, planes and entries where that makes fewer of them.
#pragma once

#include <array>
#include <vector>

#include "librun/cpu/convolution_planes.h"
#include "librun/cpu/gemm_units.h"

namespace sg::cpu {

class UnitPanels {
 public:
  static constexpr int64_t kWidth = 2 * kUnitLines;
  struct Piece {  // places of a panel that are adjacent in the target
    int64_t column, count;
    int64_t at;  // in the target: the first one's offset
  };
  struct Panel {
    int64_t begin;  // in the planes
    int tiles;
    size_t first, last;  // pieces
  };

  // Steps between entries and places of the target.
  UnitPanels(const PlaceBox& box, const PlaneLayout& layout, int64_t entry_step, const std::array<int64_t, 3>& step);
  // How many there would be, or a few less, as those without a place are left out.
  static int64_t most(const PlaceBox& box, const PlaneLayout& layout);

  const std::vector<Panel>& all() const { return panels_; }
  const Piece* pieces() const { return pieces_.data(); }

 private:
  void add_line(int64_t run, int64_t line, int64_t size, int64_t at, int64_t step);

  std::vector<Panel> panels_;
  std::vector<Piece> pieces_;
};

}  // namespace sg::cpu
