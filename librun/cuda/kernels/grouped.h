// Products of groups by tiles, bf16 in, f32 sums: the groups' beginnings and ends are read from memory, so the host
// never waits for them. A block computes a tile of one group's product, a warp 64 x 32 of it; see tile.h. While a step
// along the depth is multiplied, the next one is loaded (async.h).
//
// Groups are along the rows of `a` and `to`, each with its own matrix of `b` (groups of columns are the same with
// everything transposed), or along the depth, each with its own matrix of `to`. A block finds its group and tile by
// counting the tiles of preceding groups; there are as many blocks as there can be tiles.
#pragma once

#include "librun/cuda/kernels/async.h"
#include "librun/cuda/kernels/tile.h"

namespace sg::cuda {

struct GroupedMatrix {
  uint16_t* data = nullptr;
  int64_t group = 0, row = 0, column = 0;  // strides; group is 0 for a matrix shared by all groups
  Lies lies = Lies::straight;              // turned: columns are contiguous instead of rows
  int32_t run = 1;                         // 8 or 2: that many contiguous elements are aligned to their size
};

struct GroupedArgs {
  GroupedMatrix a, b, to;  // a [rows, depth], b [columns, depth] (transposed), to [rows, columns]
  View ends;               // [groups]
  int64_t rows = 0, columns = 0, depth = 0;
  bool along_depth = false;
  Report report;
};

inline constexpr int kGroupedTile = 128, kGroupedStep = 32;            // rows and columns of a tile; depth per step
inline constexpr int kGroupedWarpRows = 64, kGroupedWarpColumns = 32;  // of the tile
static_assert(kGroupedTile / kGroupedWarpRows * (kGroupedTile / kGroupedWarpColumns) == kWarps);

// A part of one group: rows [first, end) of a and to, columns from `column` on, and [begin, stop) of the depth. Empty
// by default.
struct GroupedPart {
  int64_t group = 0, first = 0, end = 0, begin = 0, stop = 0, column = 0;
};

SG_FN GroupedPart grouped_part(const GroupedArgs& args, int64_t block) {
  const int64_t wide = (args.columns + kGroupedTile - 1) / kGroupedTile;
  int64_t tile = block / wide, begin = 0;
  const int64_t size = args.along_depth ? args.depth : args.rows;
  for (int64_t g = 0; g < args.ends.count; ++g) {
    const int64_t stop = read_whole(args.ends, g * args.ends.stride[0]);
    if (stop < begin || stop > size) {
      args.report.raise(Fault::Kind::index, stop, size);
      return {};
    }
    const int64_t rows = args.along_depth ? args.rows : stop - begin;
    const int64_t tiles = (rows + kGroupedTile - 1) / kGroupedTile;
    if (tile < tiles) {
      const int64_t row = tile * kGroupedTile, column = block % wide * kGroupedTile;
      if (args.along_depth) return {g, row, args.rows, begin, stop, column};
      return {g, begin + row, stop, 0, args.depth, column};
    }
    tile -= tiles;
    begin = stop;
  }
  return {};
}

// An operand of a step in shared memory: [kLines][kStride]; lines are rows or, if turned, columns.
template <Lies kLies>
struct GroupedStage {
  static constexpr int kLines = kLies == Lies::straight ? kGroupedTile : kGroupedStep;
  static constexpr int kLine = kLies == Lies::straight ? kGroupedStep : kGroupedTile;
  static constexpr int kStride = kLine + 8;
  uint16_t numbers[kLines * kStride];
};

// What a stage takes of a group's operand: rows [row, row_end) and columns [column, column_end), as many as fit it.
struct GroupedWindow {
  int64_t group, row, row_end, column, column_end;
};

// Starts loading a window of an operand into its stage, with zeros outside.
template <Lies kLies>
SG_FN void grouped_load(const Block& block, const GroupedMatrix& m, const GroupedWindow& window,
                        GroupedStage<kLies>& stage) {
  using Stage = GroupedStage<kLies>;
  constexpr bool kTurned = kLies == Lies::turned;
  const int64_t across = kTurned ? m.column : m.row,
                along = kTurned ? m.row : m.column;  // strides between lines, and within a line
  const auto& [group, row, row_end, column, column_end] = window;
  const int64_t line = kTurned ? column : row, line_end = kTurned ? column_end : row_end;
  const int64_t first = kTurned ? row : column, end = kTurned ? row_end : column_end;
  const uint16_t* from = m.data + group * m.group;
  const int run = first % m.run == 0 ? m.run : m.run == 8 && first % 2 == 0 ? 2 : 1;
  block.each([&](int lane) {
    for (int i = lane; i < Stage::kLines * (Stage::kLine / 8); i += kLanes) {
      const int l = i / (Stage::kLine / 8), c = i % (Stage::kLine / 8) * 8;
      const int64_t left = line + l < line_end ? end - first - c : 0;
      const int there = left > 8 ? 8 : left > 0 ? static_cast<int>(left) : 0;  // out of 8 elements
      const uint16_t* source = there > 0 ? from + (line + l) * across + (first + c) * along : from;
      uint16_t* to = stage.numbers + l * Stage::kStride + c;
      if (run == 8) {
        copy_async<16>(to, source, 2 * there);
      } else if (run == 2) {
        for (int j = 0; j < 8; j += 2)
          copy_async<4>(to + j, there > j ? source + j : from, there > j + 1 ? 4 : there > j ? 2 : 0);
      } else {
        SG_UNROLL for (int j = 0; j < 8; ++j) to[j] = there > j ? source[j * along] : uint16_t{0};
      }
    }
  });
}

template <Lies kLeft, Lies kRight>
SG_FN void grouped_product(Block& block, const GroupedArgs& args) {
  using Left = GroupedStage<kLeft>;
  using Right = GroupedStage<kRight>;
  using Sums = Tile<kGroupedWarpRows / kTileRows, kGroupedWarpColumns / 8>;
  constexpr int kWide = kGroupedTile / kGroupedWarpColumns;
  SG_SHARED(Left, left, 2);
  SG_SHARED(Right, right, 2);
  const GroupedPart part = grouped_part(args, block.index());
  auto load = [&](int64_t k, int stage) {
    grouped_load(block, args.a, {part.group, part.first, part.end, k, part.stop}, left[stage]);
    grouped_load(block, args.b, {part.group, part.column, args.columns, k, part.stop}, right[stage]);
  };
  if (part.begin < part.stop) load(part.begin, 0);
  Warps<Sums> sums;
  block.warps(sums, [&](int, Sums& sum) { sum.fill(0); });
  int stage = 0;
  for (int64_t k = part.begin; k < part.stop; k += kGroupedStep, stage ^= 1) {
    wait_for_copies();
    block.sync();  // this stage is loaded, and all are done with the other
    if (k + kGroupedStep < part.stop) load(k + kGroupedStep, stage ^ 1);
    block.warps(sums, [&](int warp, Sums& sum) {
      const int row = warp / kWide * kGroupedWarpRows, column = warp % kWide * kGroupedWarpColumns;
      SG_UNROLL for (int i = 0; i < kGroupedStep; i += 16) multiply_tile<kRight>(
          sum, shared_left<kLeft, kGroupedWarpRows / kTileRows>(left[stage].numbers, Left::kStride, row, i),
          right[stage].numbers, Right::kStride, i, column);
    });
  }
  uint16_t* to = args.to.data + part.group * args.to.group;
  const bool in_pairs = args.to.lies == Lies::straight && args.to.run > 1;
  block.warps(sums, [&](int warp, Sums& sum) {
    const int64_t first = part.first + warp / kWide * kGroupedWarpRows;
    const int64_t left_column = part.column + warp % kWide * kGroupedWarpColumns;
    sum.each_pair([&](int row, int column, uint32_t both) {
      const int64_t r = first + row, c = left_column + column;
      if (r >= part.end || c >= args.columns) return;
      uint16_t* at = to + r * args.to.row + c * args.to.column;
      if (in_pairs && c + 1 < args.columns) {
        *reinterpret_cast<uint32_t*>(at) = both;
        return;
      }
      *at = static_cast<uint16_t>(both);
      if (c + 1 < args.columns) at[args.to.column] = static_cast<uint16_t>(both >> 16);
    });
  });
}

// One kernel for each combination of turned operands.
SG_KERNEL(grouped_tiles, GroupedArgs) { grouped_product<Lies::straight, Lies::straight>(block, args); }
SG_KERNEL(grouped_tiles_left, GroupedArgs) { grouped_product<Lies::turned, Lies::straight>(block, args); }
SG_KERNEL(grouped_tiles_right, GroupedArgs) { grouped_product<Lies::straight, Lies::turned>(block, args); }
SG_KERNEL(grouped_tiles_both, GroupedArgs) { grouped_product<Lies::turned, Lies::turned>(block, args); }

}  // namespace sg::cuda
