// What the stand-in of NCCL adds up with.
#pragma once

#include <nccl.h>

#include <cstring>

#include "librun/cuda/kernels/view.h"

namespace stub {

inline size_t size_of(ncclDataType_t t) {
  switch (t) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

template <class T, class Op>
void fold(unsigned char* acc, const unsigned char* x, size_t count, Op op) {
  for (size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, acc + i * sizeof(T), sizeof a);
    std::memcpy(&b, x + i * sizeof(T), sizeof b);
    a = op(a, b);
    std::memcpy(acc + i * sizeof(T), &a, sizeof a);
  }
}

template <class T>
T merge(ncclRedOp_t op, T a, T b) {
  if (op == ncclProd) return static_cast<T>(a * b);
  if (op == ncclMin) return b < a ? b : a;
  if (op == ncclMax) return a < b ? b : a;
  return static_cast<T>(a + b);
}

inline void reduce_into(ncclDataType_t type, ncclRedOp_t op, unsigned char* acc, const unsigned char* x, size_t count) {
  using namespace sg::cuda;
  switch (type) {
    case ncclFloat64: return fold<double>(acc, x, count, [=](double a, double b) { return merge(op, a, b); });
    case ncclFloat32: return fold<float>(acc, x, count, [=](float a, float b) { return merge(op, a, b); });
    case ncclFloat16:
      return fold<uint16_t>(acc, x, count,
                            [=](uint16_t a, uint16_t b) { return to_half(merge(op, from_half(a), from_half(b))); });
    case ncclBfloat16:
      return fold<uint16_t>(acc, x, count,
                            [=](uint16_t a, uint16_t b) { return to_brain(merge(op, from_brain(a), from_brain(b))); });
    case ncclInt64: return fold<int64_t>(acc, x, count, [=](int64_t a, int64_t b) { return merge(op, a, b); });
    case ncclInt32: return fold<int32_t>(acc, x, count, [=](int32_t a, int32_t b) { return merge(op, a, b); });
    case ncclInt8: return fold<int8_t>(acc, x, count, [=](int8_t a, int8_t b) { return merge(op, a, b); });
    default: return fold<uint8_t>(acc, x, count, [=](uint8_t a, uint8_t b) { return merge(op, a, b); });
  }
}

inline void divide(ncclDataType_t type, unsigned char* acc, size_t count, int by) {
  using namespace sg::cuda;
  const float n = static_cast<float>(by);
  if (type == ncclFloat64) fold<double>(acc, acc, count, [=](double a, double) { return a / by; });
  if (type == ncclFloat32) fold<float>(acc, acc, count, [=](float a, float) { return a / n; });
  if (type == ncclFloat16)
    fold<uint16_t>(acc, acc, count, [=](uint16_t a, uint16_t) { return to_half(from_half(a) / n); });
  if (type == ncclBfloat16)
    fold<uint16_t>(acc, acc, count, [=](uint16_t a, uint16_t) { return to_brain(from_brain(a) / n); });
}

}  // namespace stub
