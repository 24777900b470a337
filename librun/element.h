// Element types as C++ types: BF16, F16 and float8 with their roundings, and `visit` from a DType to a type.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "libgraph/dtype.h"
#include "librun/work/eighths.h"
#include "librun/work/halves.h"

namespace sg {

// Stored as 16 bits; computed with as float. What work/halves.h says of roundings.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value) : bits(work::to_brain(value)) {}
  operator float() const { return work::from_brain(bits); }
};

struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float value) : bits(work::to_half(value)) {}
  operator float() const { return work::from_half(bits); }
};

// Stored as 8 bits. What work/eighths.h says of roundings.
template <work::Eighth E>
struct F8 {
  uint8_t bits = 0;
  F8() = default;
  explicit F8(float value) : bits(work::to_eighth<E>(value)) {}
  operator float() const { return work::from_eighth<E>(bits); }
};

using C64 = std::complex<float>;
using C128 = std::complex<double>;

template <class T>
inline constexpr bool is_complex_type = std::is_same_v<T, C64> || std::is_same_v<T, C128>;
template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, BF16> || std::is_same_v<T, F16>;
template <class T>
inline constexpr bool is_eighth_type = false;
template <work::Eighth E>
inline constexpr bool is_eighth_type<F8<E>> = true;

// What arithmetic on T is done in before the result is rounded to T: float for what is narrower, T for the rest.
template <class T>
using Compute = std::conditional_t<is_half_type<T> || is_eighth_type<T>, float, T>;

// Calls fn.template operator()<T>() with the C++ type of `t`. REQUIRES: is_runnable(t), or u64, which goes as the bits
// of i64.
template <class Fn>
decltype(auto) visit_dtype(DType t, Fn&& fn) {
  switch (t) {
    case DType::f64: return fn.template operator()<double>();
    case DType::f32: return fn.template operator()<float>();
    case DType::f16: return fn.template operator()<F16>();
    case DType::bf16: return fn.template operator()<BF16>();
    case DType::i64:
    case DType::u64: return fn.template operator()<int64_t>();
    case DType::i32: return fn.template operator()<int32_t>();
    case DType::i16: return fn.template operator()<int16_t>();
    case DType::i8: return fn.template operator()<int8_t>();
    case DType::u8: return fn.template operator()<uint8_t>();
    case DType::boolean: return fn.template operator()<bool>();
    case DType::c64: return fn.template operator()<C64>();
    case DType::c128: return fn.template operator()<C128>();
    default: __builtin_unreachable();
  }
}

// The same of float8, too: for what reads, writes and compares values without computing with them.
template <class Fn>
decltype(auto) visit_stored(DType t, Fn&& fn) {
  switch (t) {
    case DType::f8e4m3fn: return fn.template operator()<F8<work::Eighth::e4m3fn>>();
    case DType::f8e5m2: return fn.template operator()<F8<work::Eighth::e5m2>>();
    case DType::f8e4m3fnuz: return fn.template operator()<F8<work::Eighth::e4m3fnuz>>();
    case DType::f8e5m2fnuz: return fn.template operator()<F8<work::Eighth::e5m2fnuz>>();
    default: return visit_dtype(t, std::forward<Fn>(fn));
  }
}

template <class Fn>
decltype(auto) visit_floating(DType t, Fn&& fn) {  // REQUIRES: is_floating(t) and is_runnable(t)
  switch (t) {
    case DType::f64: return fn.template operator()<double>();
    case DType::f32: return fn.template operator()<float>();
    case DType::f16: return fn.template operator()<F16>();
    case DType::bf16: return fn.template operator()<BF16>();
    default: __builtin_unreachable();
  }
}

// The dtypes that the backends compute with: float8 is stored, converted and multiplied alone (float8.h), the wider
// unsigned types travel in files only, but for u64, which random state that is handed from one attention op to another
// may be of.
inline bool is_runnable(DType t) {
  switch (t) {
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u8:
    case DType::boolean:
    case DType::c64:
    case DType::c128: return true;
    default: return false;
  }
}

// The dtypes that tensors of a run may have.
inline bool is_held(DType t) { return is_runnable(t) || is_float8(t); }

}  // namespace sg
