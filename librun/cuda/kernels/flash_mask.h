// Masks of attention by tiles: what 32 queries and 32 keys together have of the mask. A kernel reads the whole mask
// once for it; those of attention leave out tiles of which nothing is seen, and read the mask only where it adds
// numbers.
//
// Bits    What is left out has weights of 0, so results are those of a mask that is read everywhere; except that a key
//         or value that is infinite or NaN does not show where it is hidden by tiles.
#pragma once

#include "librun/cuda/kernels/raw.h"

namespace sg::cuda {

// Words that are read at once.
template <int kWords>
struct alignas(4 * kWords) FlashWords {
  uint32_t of[kWords];
};

// Added to scores; for booleans, minus infinity where false.
struct FlashMask {
  const void* data = nullptr;
  Element element = Element::f32;                    // or bf16, f16, boolean
  int64_t batch = 0, head = 0, row = 0, column = 0;  // strides, 0 along broadcast axes; keys * column fits in 32 bits
  // A query's keys are adjacent and even in number, and two of them from an even one on are an aligned unit.
  bool has_pairs = false;
};

// What a tile has, as bits, so that tiles together have what any of them has. A tile of minus infinities has no kSeen,
// one of zeros (of either sign) no kAdds, and what lies outside of the mask neither.
enum FlashTile : uint32_t { kSeen = 1, kAdds = 2 };

inline constexpr int kMaskTile = 32, kMaskTiles = 8;  // rows of a tile, tiles of a word
inline constexpr int kMaskGroup = kMaskTile * kMaskTiles;

// A byte per tile. A word has 8 tiles of one side, which blocks own, with one tile of the other side.
struct FlashTiles {
  uint8_t* by_query = nullptr;               // [maps, groups of queries, tiles of keys, 8]
  uint8_t* by_key = nullptr;                 // [maps, groups of keys, tiles of queries, 8]
  int64_t batch = 0, head = 0;               // steps between maps, in bytes: 0 where the mask is broadcast
  int64_t query_groups = 0, key_groups = 0;  // of 256; tiles are padded to whole groups
};

SG_FN int64_t flash_map_bytes(const FlashTiles& t) { return t.query_groups * t.key_groups * kMaskTiles * kMaskTiles; }

// What 128 R rows of a block see of the other side.
template <int R>
struct FlashSeen {
  const uint8_t* tiles;  // the block's first one with the other side's first one

  SG_FN static FlashSeen by_query(const FlashTiles& t, int64_t batch, int64_t head, int first) {
    return of(t.by_query + batch * t.batch + head * t.head, t.key_groups, first);
  }
  SG_FN static FlashSeen by_key(const FlashTiles& t, int64_t batch, int64_t head, int first) {
    return of(t.by_key + batch * t.batch + head * t.head, t.query_groups, first);
  }
  SG_FN static FlashSeen of(const uint8_t* map, int64_t groups, int first) {
    const int64_t words = first / kMaskGroup * groups * kMaskTiles;
    return {map + words * kMaskTiles + first % kMaskGroup / kMaskTile};
  }

  // Whether any row of the block sees any of `count` rows of the other side, a multiple of kMaskTile, from `other` on.
  SG_FN bool any(int other, int count) const {
    uint32_t all = 0;
    SG_UNROLL for (int i = 0; i < count; i += kMaskTile) {
      const auto* word = reinterpret_cast<const FlashWords<R>*>(tiles + (other + i) / kMaskTile * kMaskTiles);
      SG_UNROLL for (int r = 0; r < R; ++r) all |= word->of[r];
    }
    return (all & 0x01010101u * kSeen) != 0;
  }
  // What the tile of the block's row `row` has with `count` rows of the other side from `other` on.
  SG_FN uint32_t kind(int row, int other, int count) const {
    uint32_t all = 0;
    SG_UNROLL for (int i = 0; i < count; i += kMaskTile) {
      all |= tiles[(other + i) / kMaskTile * kMaskTiles + row / kMaskTile];
    }
    return all;
  }
};

// --- numbers of a mask ---

template <class Raw>
SG_FN float flash_added(Raw x) {
  return value_of(x);
}
SG_FN float flash_added(Flag x) { return value_of(x) ? 0.0f : -static_cast<float>(math::infinity()); }

struct FlashTwo {
  float first, second;
};
template <class Raw>
SG_FN FlashTwo flash_two(const Raw* at) {
  struct alignas(2 * sizeof(Raw)) Two {
    Raw first, second;
  };
  const Two two = *reinterpret_cast<const Two*>(at);
  return {flash_added(two.first), flash_added(two.second)};
}
SG_FN FlashTwo flash_two(const Bf16* at) {
  const uint32_t both = *reinterpret_cast<const uint32_t*>(at);
  return {number(both << 16), number(both & 0xFFFF0000u)};
}

// --- tiles of a mask ---

struct FlashTilesArgs {
  FlashMask mask;
  FlashTiles tiles;
  int64_t heads = 1;  // of the maps
  int64_t queries = 0, keys = 0;
};

// What a column of keys has in 8 tiles of queries: two bits a tile.
template <class Raw>
SG_FN uint32_t flash_column(const FlashTilesArgs& args, int64_t offset, int64_t query, int64_t key) {
  if (key >= args.keys) return 0;
  const Raw* at = static_cast<const Raw*>(args.mask.data) + offset + query * args.mask.row + key * args.mask.column;
  uint32_t all = 0;
  for (int tile = 0; tile < kMaskTiles; ++tile, query += kMaskTile) {
    const int64_t left = args.queries - query;
    int rows = left < kMaskTile ? static_cast<int>(left) : kMaskTile;
    if (args.mask.row == 0 && rows > 1) rows = 1;  // the others are the same
    uint32_t kind = 0;
    SG_UNROLL_BY_8 for (int i = 0; i < rows; ++i) {
      const float x = flash_added(at[i * args.mask.row]);
      kind |= (x == -static_cast<float>(math::infinity()) ? 0u : kSeen) | (x == 0 ? 0u : kAdds);
    }
    all |= kind << (2 * tile);
    at += kMaskTile * args.mask.row;
  }
  return all;
}

// A block takes 256 queries and as many keys of a map.
SG_KERNEL(flash_mask_tiles, FlashTilesArgs) {
  static_assert(kMaskGroup == kLanes);
  SG_SHARED(uint32_t, columns, kLanes);
  SG_SHARED(uint32_t, tiles, kMaskTiles);  // by tile of keys
  const FlashTiles& to = args.tiles;
  const int64_t key_group = block.index() % to.key_groups;
  const int64_t query_group = block.index() / to.key_groups % to.query_groups;
  const int64_t map = block.index() / to.key_groups / to.query_groups;
  const int64_t offset = map / args.heads * args.mask.batch + map % args.heads * args.mask.head;
  block.each([&](int lane) {
    const int64_t query = query_group * kMaskGroup, key = key_group * kMaskGroup + lane;
    switch (args.mask.element) {
      case Element::f32: columns[lane] = flash_column<float>(args, offset, query, key); break;
      case Element::bf16: columns[lane] = flash_column<Bf16>(args, offset, query, key); break;
      case Element::f16: columns[lane] = flash_column<F16>(args, offset, query, key); break;
      default: columns[lane] = flash_column<Flag>(args, offset, query, key);
    }
  });
  block.sync();
  block.each([&](int lane) {
    if (lane >= kMaskTiles) return;
    uint32_t all = 0;
    for (int i = 0; i < kMaskTile; ++i) all |= columns[lane * kMaskTile + i];
    tiles[lane] = all;
  });
  block.sync();
  block.each([&](int lane) {
    if (lane >= kMaskTiles * kMaskTiles) return;
    const int own = lane % kMaskTiles, other = lane / kMaskTiles;
    const int64_t begin = map * flash_map_bytes(to);
    const int64_t query_word = (query_group * to.key_groups + key_group) * kMaskTiles + other;
    const int64_t key_word = (key_group * to.query_groups + query_group) * kMaskTiles + other;
    to.by_query[begin + query_word * kMaskTiles + own] = static_cast<uint8_t>(tiles[other] >> (2 * own) & 3);
    to.by_key[begin + key_word * kMaskTiles + own] = static_cast<uint8_t>(tiles[own] >> (2 * other) & 3);
  });
}

}  // namespace sg::cuda
