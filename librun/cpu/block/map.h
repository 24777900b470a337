// Turns functions of one element into block functions. Only for the files of this folder: see block.h.
#pragma once

#include <type_traits>
#include <utility>

#include "librun/cpu/block/block.h"
#include "librun/work/complex.h"

#ifndef SG_ISA
#define SG_ISA isa_baseline
#endif

namespace sg::cpu::SG_ISA {

void add_arithmetic(BlockTable&);
void add_integers(BlockTable&);
void add_tests(BlockTable&);
void add_math(BlockTable&);
void add_activations(BlockTable&);
void add_complex(BlockTable&);
void add_complex_functions(BlockTable&);
void add_special(BlockTable&);
void add_memory(BlockTable&);

namespace {

using math::Cx;

// Registers by element type: bool is uint8_t, complex numbers are Cx.
template <class T>
struct Reader {
  const T* p;
  explicit Reader(const void* reg) : p(static_cast<const T*>(reg)) {}
  SG_INLINE T operator[](int64_t i) const { return p[i]; }
};
template <class T>
struct Reader<Cx<T>> {
  const T* p;
  explicit Reader(const void* reg) : p(static_cast<const T*>(reg)) {}
  SG_INLINE Cx<T> operator[](int64_t i) const { return {p[i], p[kBlock + i]}; }
};

template <class T>
struct Writer {
  T* p;
  explicit Writer(void* reg) : p(static_cast<T*>(reg)) {}
  SG_INLINE void set(int64_t i, T v) const { p[i] = v; }
};
template <class T>
struct Writer<Cx<T>> {
  T* p;
  explicit Writer(void* reg) : p(static_cast<T*>(reg)) {}
  SG_INLINE void set(int64_t i, Cx<T> v) const { p[i] = v.re, p[kBlock + i] = v.im; }
};

template <class F, class Out, class... In>
SG_INLINE void apply(Writer<Out> out, int64_t n, Reader<In>... in) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out.set(i, static_cast<Out>(F{}(in[i]...)));
}

template <class F, class Out, class... In>
struct Map {
  template <size_t... I>
  SG_INLINE static void spread(void* out, const void* const* in, int64_t n, std::index_sequence<I...>) {
    apply<F>(Writer<Out>(out), n, Reader<In>(in[I])...);
  }
  // Flattened: even a long function of one element must be inlined into the loop.
  [[gnu::flatten]] static void run(void* out, const void* const* in, int64_t n, bool*) {
    spread(out, in, n, std::index_sequence_for<In...>());
  }
};

template <class T>
constexpr Lane lane_of() {
  if constexpr (std::is_same_v<T, float>) return Lane::f32;
  else if constexpr (std::is_same_v<T, double>) return Lane::f64;
  else if constexpr (std::is_same_v<T, int64_t>) return Lane::i64;
  else if constexpr (std::is_same_v<T, uint8_t>) return Lane::b8;
  else if constexpr (std::is_same_v<T, Cx<float>>) return Lane::c64;
  else return Lane::c128;
}

inline BlockFn& place(BlockTable& t, BlockOp op, Lane lane) {
  return t.fn[static_cast<size_t>(op)][static_cast<size_t>(lane)];
}

template <class F, class Out, class T, size_t... I>
constexpr BlockFn map_of(std::index_sequence<I...>) {
  return &Map<F, Out, std::conditional_t<(I >= 0), T, void>...>::run;
}

// Sets op on lane T: N operands of T, a result of Out.
template <class T, int N, class Out = T, class F>
void one(BlockTable& t, BlockOp op, F) {
  place(t, op, lane_of<T>()) = map_of<F, Out, T>(std::make_index_sequence<N>());
}

template <int N, class F>
void real(BlockTable& t, BlockOp op, F f) {
  one<float, N>(t, op, f), one<double, N>(t, op, f);
}
template <int N, class F>
void complex(BlockTable& t, BlockOp op, F f) {
  one<Cx<float>, N>(t, op, f), one<Cx<double>, N>(t, op, f);
}
template <int N, class F>
void real_test(BlockTable& t, BlockOp op, F f) {
  one<float, N, uint8_t>(t, op, f), one<double, N, uint8_t>(t, op, f);
}

}  // namespace
}  // namespace sg::cpu::SG_ISA
