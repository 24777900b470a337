// Conversions between memory and registers, and between registers of different lanes.
#include "librun/cpu/block/map.h"
#include "librun/work/eighths.h"
#include "librun/work/halves.h"

namespace sg::cpu::SG_ISA {
namespace {

using work::Eighth;
using work::from_brain;
using work::from_eighth;
using work::from_half;
using work::to_brain;
using work::to_eighth;
using work::to_half;

// --- elements whose stored form differs from their register form ---

struct Brain {
  uint16_t bits;
};  // bf16
struct Half {
  uint16_t bits;
};  // f16
template <Eighth E>
struct Small {
  uint8_t bits;
};  // float8
struct Flag {
  uint8_t byte;
};  // bool: any byte except 0 is true

// decode(memory) gives the register's contents; encode is the inverse, with rounding.
template <class M>
SG_INLINE M decode(M m) {
  return m;
}
SG_INLINE float decode(Brain m) { return from_brain(m.bits); }
SG_INLINE float decode(Half m) { return from_half(m.bits); }
template <Eighth E>
SG_INLINE float decode(Small<E> m) {
  return from_eighth<E>(m.bits);
}
SG_INLINE uint8_t decode(Flag m) { return m.byte != 0; }
SG_INLINE int64_t decode(int32_t m) { return m; }
SG_INLINE int64_t decode(int16_t m) { return m; }
SG_INLINE int64_t decode(int8_t m) { return m; }
SG_INLINE int64_t decode(uint8_t m) { return m; }

template <class M>
inline constexpr bool is_small = false;
template <Eighth E>
inline constexpr bool is_small<Small<E>> = true;

template <Eighth E>
SG_INLINE Small<E> encode_small(float r, Small<E>*) {
  return {to_eighth<E>(r)};
}

template <class M, class R>
SG_INLINE M encode(R r) {
  if constexpr (std::is_same_v<M, Brain>) return {to_brain(r)};
  else if constexpr (std::is_same_v<M, Half>) return {to_half(r)};
  else if constexpr (is_small<M>) return encode_small(r, static_cast<M*>(nullptr));
  else if constexpr (std::is_same_v<M, Flag>) return {r};
  else return static_cast<M>(r);
}

template <class M>
void load(void* reg, const void* from, int64_t n, int64_t step) {
  auto* r = static_cast<decltype(decode(M{}))*>(reg);
  auto* m = static_cast<const M*>(from);
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) r[i] = decode(m[i]);
  } else if (step == 0) {
    auto value = decode(m[0]);
    for (int64_t i = 0; i < n; ++i) r[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) r[i] = decode(m[i * step]);
  }
}

template <class M>
void store(void* to, const void* reg, int64_t n, int64_t step) {
  auto* m = static_cast<M*>(to);
  auto* r = static_cast<const decltype(decode(M{}))*>(reg);
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) m[i] = encode<M>(r[i]);
  else
    for (int64_t i = 0; i < n; ++i) m[i * step] = encode<M>(r[i]);
}

template <class T>
void load_complex(void* reg, const void* from, int64_t n, int64_t step) {
  auto *re = static_cast<T*>(reg), *im = re + kBlock;
  auto* m = static_cast<const T*>(from);
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) re[i] = m[2 * i], im[i] = m[2 * i + 1];
  else
    for (int64_t i = 0; i < n; ++i) re[i] = m[2 * i * step], im[i] = m[2 * i * step + 1];
}

template <class T>
void store_complex(void* to, const void* reg, int64_t n, int64_t step) {
  auto *re = static_cast<const T*>(reg), *im = re + kBlock;
  auto* m = static_cast<T*>(to);
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) m[2 * i] = re[i], m[2 * i + 1] = im[i];
  else
    for (int64_t i = 0; i < n; ++i) m[2 * i * step] = re[i], m[2 * i * step + 1] = im[i];
}

void place_memory(BlockTable& t, DType dtype, LoadFn load_fn, StoreFn store_fn) {
  t.load[static_cast<size_t>(dtype)] = load_fn;
  t.store[static_cast<size_t>(dtype)] = store_fn;
}

// --- between lanes ---

template <class T>
inline constexpr bool is_cx = std::is_same_v<T, Cx<float>> || std::is_same_v<T, Cx<double>>;

template <class To, class From>
SG_INLINE To convert(From x) {
  if constexpr (is_cx<From> && is_cx<To>)
    return {static_cast<decltype(To::re)>(x.re), static_cast<decltype(To::re)>(x.im)};
  else if constexpr (is_cx<From> && std::is_same_v<To, uint8_t>) return x.re != 0 || x.im != 0;
  else if constexpr (is_cx<From>) return static_cast<To>(x.re);
  else if constexpr (is_cx<To>) return {static_cast<decltype(To::re)>(x), 0};
  else if constexpr (std::is_same_v<To, uint8_t>) return x != 0;
  else return static_cast<To>(x);
}

template <class From, class To>
void add_conversion(BlockTable& t) {
  auto f = [](From x) { return convert<To>(x); };
  t.convert[static_cast<size_t>(lane_of<From>())][static_cast<size_t>(lane_of<To>())] =
      &Map<decltype(f), To, From>::run;
}

template <class T>
void add_lane(BlockTable& t) {  // what every lane has
  add_conversion<T, float>(t);
  add_conversion<T, double>(t);
  add_conversion<T, int64_t>(t);
  add_conversion<T, uint8_t>(t);
  add_conversion<T, Cx<float>>(t);
  add_conversion<T, Cx<double>>(t);
  one<T, 1>(t, BlockOp::copy, [](T x) { return x; });
  auto pick = [](uint8_t condition, T a, T b) { return condition ? a : b; };
  place(t, BlockOp::where, lane_of<T>()) = &Map<decltype(pick), T, uint8_t, T, T>::run;
}

template <Eighth E>
void add_small(BlockTable& t, BlockOp round, DType dtype) {
  one<float, 1>(t, round, [](float x) { return from_eighth<E>(to_eighth<E>(x)); });
  place_memory(t, dtype, load<Small<E>>, store<Small<E>>);
}

}  // namespace

void add_memory(BlockTable& t) {
  add_lane<float>(t);
  add_lane<double>(t);
  add_lane<int64_t>(t);
  add_lane<uint8_t>(t);
  add_lane<Cx<float>>(t);
  add_lane<Cx<double>>(t);
  one<float, 1>(t, BlockOp::round_bf16, [](float x) { return from_brain(to_brain(x)); });
  one<float, 1>(t, BlockOp::round_f16, [](float x) { return from_half(to_half(x)); });
  place_memory(t, DType::f64, load<double>, store<double>);
  place_memory(t, DType::f32, load<float>, store<float>);
  place_memory(t, DType::f16, load<Half>, store<Half>);
  place_memory(t, DType::bf16, load<Brain>, store<Brain>);
  add_small<Eighth::e4m3fn>(t, BlockOp::round_e4m3fn, DType::f8e4m3fn);
  add_small<Eighth::e5m2>(t, BlockOp::round_e5m2, DType::f8e5m2);
  add_small<Eighth::e4m3fnuz>(t, BlockOp::round_e4m3fnuz, DType::f8e4m3fnuz);
  add_small<Eighth::e5m2fnuz>(t, BlockOp::round_e5m2fnuz, DType::f8e5m2fnuz);
  place_memory(t, DType::i64, load<int64_t>, store<int64_t>);
  place_memory(t, DType::i32, load<int32_t>, store<int32_t>);
  place_memory(t, DType::i16, load<int16_t>, store<int16_t>);
  place_memory(t, DType::i8, load<int8_t>, store<int8_t>);
  place_memory(t, DType::u8, load<uint8_t>, store<uint8_t>);
  place_memory(t, DType::boolean, load<Flag>, store<Flag>);
  place_memory(t, DType::c64, load_complex<float>, store_complex<float>);
  place_memory(t, DType::c128, load_complex<double>, store_complex<double>);
}

}  // namespace sg::cpu::SG_ISA
