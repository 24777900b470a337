// The reduction of a collective, in the order of ranks: the counterpart of librun/comm/reduce.h.
#pragma once

#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

enum class SlotReduce : uint8_t { sum, average, product, minimum, maximum, premul_sum, bit_and, bit_or, bit_xor };

struct SlotArgs {
  View slots;  // [members, count]
  View to;     // [count]
  SlotReduce kind = SlotReduce::sum;
  double factor = 1;
};

template <class C>
SG_FN C merge_slot(SlotReduce kind, C a, C b) {
  switch (kind) {
    case SlotReduce::product: return a * b;
    case SlotReduce::minimum: return a != a ? a : (b < a || b != b) ? b : a;
    case SlotReduce::maximum: return a != a ? a : (a < b || b != b) ? b : a;
    default: return a + b;
  }
}

template <class C>
SG_FN void reduce_slot(const SlotArgs& args, int64_t i) {
  const int64_t members = args.slots.shape[0], step = args.slots.stride[0];
  const bool scales = args.kind == SlotReduce::premul_sum;
  const C factor = static_cast<C>(args.factor);
  C acc = read<C>(args.slots, i);
  if (scales) acc *= factor;
  for (int64_t m = 1; m < members; ++m) {
    C x = read<C>(args.slots, m * step + i);
    acc = merge_slot(args.kind, acc, scales ? x * factor : x);
  }
  if (args.kind == SlotReduce::average) acc /= static_cast<C>(members);
  write<C>(args.to, i, acc);
}

SG_FN int64_t merge_whole(SlotReduce kind, bool flag, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  if (flag)
    return kind == SlotReduce::product || kind == SlotReduce::minimum || kind == SlotReduce::bit_and ? (a & b)
           : kind == SlotReduce::bit_xor                                                             ? (a ^ b)
                                                                                                     : (a | b);
  switch (kind) {
    case SlotReduce::product: return static_cast<int64_t>(x * y);
    case SlotReduce::minimum: return b < a ? b : a;
    case SlotReduce::maximum: return a < b ? b : a;
    case SlotReduce::bit_and: return a & b;
    case SlotReduce::bit_or: return a | b;
    case SlotReduce::bit_xor: return a ^ b;
    default: return static_cast<int64_t>(x + y);
  }
}

SG_FN void reduce_whole_slot(const SlotArgs& args, int64_t i) {
  const int64_t members = args.slots.shape[0], step = args.slots.stride[0];
  const bool flag = args.slots.element == Element::boolean;
  int64_t acc = read_whole(args.slots, i);
  for (int64_t m = 1; m < members; ++m) acc = merge_whole(args.kind, flag, acc, read_whole(args.slots, m * step + i));
  if (args.kind == SlotReduce::average && !flag) acc /= members;
  write_whole(args.to, i, acc);
}

SG_KERNEL(reduce_slots, SlotArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      if (args.slots.element == Element::f64) reduce_slot<double>(args, i);
      else if (is_floating(args.slots.element)) reduce_slot<float>(args, i);
      else reduce_whole_slot(args, i);
    }
  });
}

}  // namespace sg::cuda
