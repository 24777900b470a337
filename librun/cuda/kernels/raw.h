// Elements as stored in memory, and the numbers they represent.
#pragma once

#include "librun/cuda/kernels/element_functions.h"

namespace sg::cuda {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
template <work::Eighth E>
struct F8 {
  uint8_t bits;
};
using F8E4m3fn = F8<work::Eighth::e4m3fn>;
using F8E5m2 = F8<work::Eighth::e5m2>;
using F8E4m3fnuz = F8<work::Eighth::e4m3fnuz>;
using F8E5m2fnuz = F8<work::Eighth::e5m2fnuz>;
struct Flag {
  uint8_t bits;
};

SG_FN float value_of(Bf16 x) { return from_brain(x.bits); }
SG_FN float value_of(F16 x) { return from_half(x.bits); }
template <work::Eighth E>
SG_FN float value_of(F8<E> x) {
  return work::from_eighth<E>(x.bits);
}
SG_FN bool value_of(Flag x) { return x.bits != 0; }
SG_FN float value_of(float x) { return x; }
SG_FN double value_of(double x) { return x; }
SG_FN int64_t value_of(int64_t x) { return x; }
SG_FN int64_t value_of(int32_t x) { return x; }
SG_FN int64_t value_of(int16_t x) { return x; }
SG_FN int64_t value_of(int8_t x) { return x; }
SG_FN int64_t value_of(uint8_t x) { return x; }
template <class T>
SG_FN Cx<T> value_of(Cx<T> x) {
  return x;
}

template <class Raw, class V>
struct Stored {
  SG_FN static Raw of(V x) { return static_cast<Raw>(x); }
};
template <>
struct Stored<Bf16, float> {
  SG_FN static Bf16 of(float x) { return {to_brain(x)}; }
};
template <>
struct Stored<F16, float> {
  SG_FN static F16 of(float x) { return {to_half(x)}; }
};
template <work::Eighth E>
struct Stored<F8<E>, float> {
  SG_FN static F8<E> of(float x) { return {work::to_eighth<E>(x)}; }
};
template <>
struct Stored<Flag, bool> {
  SG_FN static Flag of(bool x) { return {x}; }
};
template <class Raw, class V>
SG_FN Raw stored_as(V x) {
  return Stored<Raw, V>::of(x);
}

}  // namespace sg::cuda
