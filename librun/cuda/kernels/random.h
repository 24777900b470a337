// Random numbers on the device: those of librun/random.h, by the same key and index.
#pragma once

#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

struct RandomArgs {
  View to, mask, from;  // dropout: `to` = from * mask * scale
  uint32_t key[2] = {}, high[2] = {};
  double probability = 0, scale = 1;
  // A chunk draws what its part of the original does: row-major strides of the original, and where the chunk begins in
  // it.
  int64_t origin_stride[kMaxAxes] = {}, origin_first = 0;
  bool has_origin = false;
};

struct Words {
  uint32_t w[4];
};

SG_FN Words philox(Words c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.w[0], p1 = uint64_t{0xCD9E8D57u} * c.w[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.w[1] ^ key0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.w[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

SG_FN uint32_t random_word(const RandomArgs& args, uint64_t i) {
  const uint64_t n = i / 4;
  return philox({{static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), args.high[0], args.high[1]}}, args.key[0],
                args.key[1])
      .w[i % 4];
}

SG_FN uint64_t origin_index(const RandomArgs& args, int64_t i) {
  if (!args.has_origin) return static_cast<uint64_t>(i);
  int64_t at = args.origin_first;
  for (int axis = args.to.axes - 1; axis >= 0; --axis) {
    at += i % args.to.shape[axis] * args.origin_stride[axis];
    i /= args.to.shape[axis];
  }
  return static_cast<uint64_t>(at);
}

SG_FN bool is_drawn(const RandomArgs& args, int64_t i) {
  return static_cast<double>(random_word(args, origin_index(args, i))) / 4294967296.0 < args.probability;
}

SG_KERNEL(bernoulli_elements, RandomArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes)
      write_whole(args.to, offset_of(args.to, i), is_drawn(args, i));
  });
}

}  // namespace sg::cuda
