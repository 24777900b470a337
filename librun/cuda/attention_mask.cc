#include "librun/cuda/attention_mask.h"

#include <array>
#include <limits>

#include "librun/cuda/backend_cuda.h"

namespace sg::cuda {

std::optional<FlashMask> flash_mask(const Tensor& t, int64_t keys) {
  const Element e = Device::view(t).element;
  if (e != Element::f32 && e != Element::bf16 && e != Element::f16 && e != Element::boolean) return std::nullopt;
  auto step = [&](int axis) { return t.dim(axis) == 1 ? 0 : t.step(axis); };
  FlashMask mask{t.data, e, step(0), step(1), step(2), step(3), false};
  if (mask.column > std::numeric_limits<uint32_t>::max() / keys) return std::nullopt;
  mask.has_pairs = mask.column == 1 && keys % 2 == 0 && mask.batch % 2 == 0 && mask.head % 2 == 0 &&
                   mask.row % 2 == 0 && reinterpret_cast<uintptr_t>(t.data) % (2 * dtype_bytes(t.dtype)) == 0;
  return mask;
}

FlashTiles flash_tiles(KernelCall& call, const FlashMask& mask, const FlashSizes& sizes) {
  auto groups = [](int64_t rows) { return (rows + kMaskGroup - 1) / kMaskGroup; };
  FlashTilesArgs args;
  args.mask = mask;
  args.queries = sizes.queries;
  args.keys = sizes.keys;
  args.heads = mask.head == 0 ? 1 : sizes.heads;
  const int64_t maps = (mask.batch == 0 ? 1 : sizes.batches) * args.heads;
  FlashTiles& tiles = args.tiles;
  tiles.query_groups = groups(sizes.queries);
  tiles.key_groups = groups(sizes.keys);
  const int64_t bytes = flash_map_bytes(tiles);
  const Tensor memory = backend_of(call).scratch(DType::u8, std::array<int64_t, 3>{2, maps, bytes});
  tiles.by_query = memory.as<uint8_t>();
  tiles.by_key = tiles.by_query + maps * bytes;
  tiles.batch = mask.batch == 0 ? 0 : args.heads * bytes;
  tiles.head = mask.head == 0 ? 0 : bytes;
  device_of(call).launch("flash_mask_tiles", maps * tiles.query_groups * tiles.key_groups, args);
  return tiles;
}

}  // namespace sg::cuda
