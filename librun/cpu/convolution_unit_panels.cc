#include "librun/cpu/convolution_unit_panels.h"

#include <algorithm>

#include "librun/cpu/blocks.h"

namespace sg::cpu {
namespace {

enum class Level : uint8_t { line, plane, entry, box };  // across which panels do not go on

int64_t count_at(const PlaceBox& box, const PlaneLayout& layout, Level level) {
  const int64_t a = box.size[0] - 1, b = box.size[1] - 1, lines = box.size[0] * box.size[1];
  switch (level) {
    case Level::line: return box.entries * lines * blocks_of(box.size[2], UnitPanels::kWidth);
    case Level::plane:
      return box.entries * box.size[0] * blocks_of(layout.line(0, 0, b) + box.size[2], UnitPanels::kWidth);
    case Level::entry: return box.entries * blocks_of(layout.line(0, a, b) + box.size[2], UnitPanels::kWidth);
    default: return blocks_of(layout.line(box.entries - 1, a, b) + box.size[2], UnitPanels::kWidth);
  }
}

Level best_level(const PlaceBox& box, const PlaneLayout& layout) {
  Level best = Level::line;
  for (Level level : {Level::plane, Level::entry, Level::box})
    if (count_at(box, layout, level) < count_at(box, layout, best)) best = level;
  return best;
}

}  // namespace

UnitPanels::UnitPanels(const PlaceBox& box, const PlaneLayout& layout, int64_t entry_step,
                       const std::array<int64_t, 3>& step) {
  int64_t run = -1;
  const Level level = best_level(box, layout);
  for (int64_t e = 0; e < box.entries; ++e)
    for (int64_t a = 0; a < box.size[0]; ++a)
      for (int64_t b = 0; b < box.size[1]; ++b) {
        const int64_t line = layout.line(e, a, b);
        if (run < 0 || level == Level::line || (level == Level::plane && b == 0) ||
            (level == Level::entry && a == 0 && b == 0))
          run = line, panels_.push_back({run, 1, pieces_.size(), pieces_.size()});
        add_line(run, line, box.size[2], e * entry_step + a * step[0] + b * step[1], step[2]);
      }
}

int64_t UnitPanels::most(const PlaceBox& box, const PlaneLayout& layout) {
  return count_at(box, layout, best_level(box, layout));
}

void UnitPanels::add_line(int64_t run, int64_t line, int64_t size, int64_t at, int64_t step) {
  for (int64_t c = 0, count = 0; c < size; c += count) {
    const int64_t column = (line + c - run) % kWidth, begin = line + c - column;
    count = std::min(size - c, kWidth - column);
    if (panels_.back().begin != begin) panels_.push_back({begin, 1, pieces_.size(), pieces_.size()});
    pieces_.push_back({column, count, at + c * step});
    panels_.back().last = pieces_.size();
    if (column + count > kUnitLines) panels_.back().tiles = 2;
  }
}

}  // namespace sg::cpu
