// Products of groups by tiles, bf16 in, f32 summed: where a group begins and ends is read from memory, so the host never
// waits for it. A block has a tile of one group's product, a warp 16 of its rows; see tile.h.
//
// Groups lie along the rows of `a` and `to`, a matrix of `b` each (groups of columns are the same, all three turned), or
// along the depth, a matrix of `to` each. Which tile of which group a block has, it finds by counting the tiles of the
// groups before it; there are as many blocks as there can be tiles.
#pragma once

#include "librun/cuda/kernels/tile.h"

namespace sg::cuda {

struct GroupedMatrix {
  uint16_t* data = nullptr;
  int64_t group = 0, row = 0, column = 0;  // strides; of what all groups share, none from group to group
  bool has_pairs = false;                  // columns lie side by side, and numbers 2 n and 2 n + 1 of a row in one word
};

struct GroupedArgs {
  GroupedMatrix a, b, to;  // a [rows, depth], b [columns, depth]: turned, to [rows, columns]
  View ends;               // [groups]
  int64_t rows = 0, columns = 0, depth = 0;
  bool along_depth = false;
  Report report;
};

inline constexpr int kGroupedTile = 128, kGroupedStep = 32;  // rows and columns of a tile; of the depth at a time
static_assert(kGroupedTile == kTileRows * kWarps);

// Part of one group: rows [first, end) of a and to, columns from `column` on, along [begin, stop) of the depth. As it is
// here, nothing.
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

// Rows [first, end) and columns [begin, begin + kGroupedStep) up to `stop`, zeros outside, to [kGroupedTile][step].
SG_FN void grouped_load(const Block& block, const GroupedMatrix& m, int64_t group, int64_t first, int64_t end,
                        int64_t begin, int64_t stop, uint16_t* to, int step) {
  const uint16_t* from = m.data + group * m.group;
  block.each([&](int lane) {
    if (m.has_pairs && begin % 2 == 0) {
      for (int i = lane; i < kGroupedTile * (kGroupedStep / 2); i += kLanes) {
        const int row = i / (kGroupedStep / 2), column = i % (kGroupedStep / 2) * 2;
        const int64_t r = first + row, c = begin + column;
        uint32_t both = 0;
        if (r < end && c + 1 < stop) both = *reinterpret_cast<const uint32_t*>(from + r * m.row + c);
        else if (r < end && c < stop) both = from[r * m.row + c];
        *reinterpret_cast<uint32_t*>(to + row * step + column) = both;
      }
      return;
    }
    const bool rows_first = m.row == 1;  // neighbouring lanes read neighbours
    for (int i = lane; i < kGroupedTile * kGroupedStep; i += kLanes) {
      const int row = rows_first ? i % kGroupedTile : i / kGroupedStep;
      const int column = rows_first ? i / kGroupedTile : i % kGroupedStep;
      const int64_t r = first + row, c = begin + column;
      to[row * step + column] = r < end && c < stop ? from[r * m.row + c * m.column] : uint16_t{0};
    }
  });
}

SG_KERNEL(grouped_tiles, GroupedArgs) {
  constexpr int kStep = kGroupedStep + 8;  // of rows in shared memory: no two of a warp's reads meet in one bank
  SG_SHARED(uint16_t, left, kGroupedTile * kStep);
  SG_SHARED(uint16_t, right, kGroupedTile * kStep);
  const GroupedPart part = grouped_part(args, block.index());
  Warps<Tile<kGroupedTile / 8>> sums;
  block.warps(sums, [&](int, Tile<kGroupedTile / 8>& sum) { sum.fill(0); });
  for (int64_t k = part.begin; k < part.stop; k += kGroupedStep) {
    grouped_load(block, args.a, part.group, part.first, part.end, k, part.stop, left, kStep);
    grouped_load(block, args.b, part.group, part.column, args.columns, k, part.stop, right, kStep);
    block.sync();
    block.warps(sums, [&](int warp, Tile<kGroupedTile / 8>& sum) {
      const uint16_t* own = left + warp * kTileRows * kStep;
      for (int i = 0; i < kGroupedStep; i += 16) {
        const LeftTile tile = load_left(
            [&](int row, int column) { return *reinterpret_cast<const uint32_t*>(own + row * kStep + i + column); });
        multiply_tile(sum, tile, right, kStep, i);
      }
    });
    block.sync();
  }
  uint16_t* to = args.to.data + part.group * args.to.group;
  block.warps(sums, [&](int warp, Tile<kGroupedTile / 8>& sum) {
    const int64_t first = part.first + warp * kTileRows;
    sum.each([&](int row, int column, float& x) {
      if (first + row < part.end && part.column + column < args.columns)
        to[(first + row) * args.to.row + (part.column + column) * args.to.column] = to_brain(x);
    });
  });
}

}  // namespace sg::cuda
