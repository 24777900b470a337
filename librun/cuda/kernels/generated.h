// The building blocks of generated kernels (generate.h): the rows of element_ops.def as functions, and access to
// elements.
//
// Generated text is compiled by NVRTC, or by the host's compiler in tests, using only these headers.
#pragma once

#include "librun/cuda/kernels/element_functions.h"
#include "librun/cuda/kernels/near.h"  // called by near_ops.def
#include "librun/cuda/kernels/raw.h"

namespace sg::cuda {

inline constexpr int kMostSlots = 64;  // tensors of a chain

struct ChainArgs {
  int64_t elements = 0;
  unsigned char* data[kMostSlots] = {};
  Report report;
};

// --- rows: real_add<float>(a, b), whole_add(a, b), flag_add(a, b), complex_add(a, b) ---

#define REAL(op, ...)                                                                               \
  template <class T>                                                                                \
  SG_FN T real_##op([[maybe_unused]] T a, [[maybe_unused]] T b = T(0), [[maybe_unused]] T c = T(0), \
                    [[maybe_unused]] T d = T(0), [[maybe_unused]] T e = T(0)) {                     \
    return __VA_ARGS__;                                                                             \
  }
#define REAL_TEST(op, ...)                                                                             \
  template <class T>                                                                                   \
  SG_FN bool real_##op([[maybe_unused]] T a, [[maybe_unused]] T b = T(0), [[maybe_unused]] T c = T(0), \
                       [[maybe_unused]] T d = T(0)) {                                                  \
    return __VA_ARGS__;                                                                                \
  }
#define WHOLE(op, ...)                                                                        \
  SG_FN int64_t whole_##op([[maybe_unused]] const Report& report, [[maybe_unused]] int64_t a, \
                           [[maybe_unused]] int64_t b = 0, [[maybe_unused]] int64_t c = 0,    \
                           [[maybe_unused]] int64_t d = 0) {                                  \
    return __VA_ARGS__;                                                                       \
  }
#define WHOLE_TEST(op, ...)                                                                \
  SG_FN bool whole_##op([[maybe_unused]] const Report& report, [[maybe_unused]] int64_t a, \
                        [[maybe_unused]] int64_t b = 0) {                                  \
    return __VA_ARGS__;                                                                    \
  }
#define FLAG(op, ...)                                                                                    \
  SG_FN bool flag_##op([[maybe_unused]] int a, [[maybe_unused]] int b = 0, [[maybe_unused]] int c = 0) { \
    return ((__VA_ARGS__)&1) != 0;                                                                       \
  }
#define FLAG_TEST FLAG
#define CX(op, ...)                                                                                                \
  template <class T>                                                                                               \
  SG_FN Cx<T> complex_##op([[maybe_unused]] Cx<T> a, [[maybe_unused]] Cx<T> b = {}, [[maybe_unused]] Cx<T> c = {}, \
                           [[maybe_unused]] Cx<T> d = {}) {                                                        \
    return __VA_ARGS__;                                                                                            \
  }
#define CX_TEST(op, ...)                                                             \
  template <class T>                                                                 \
  SG_FN bool complex_##op([[maybe_unused]] Cx<T> a, [[maybe_unused]] Cx<T> b = {}) { \
    return __VA_ARGS__;                                                              \
  }
#include "librun/cuda/kernels/element_ops.def"
#undef REAL
#undef REAL_TEST
#undef WHOLE
#undef WHOLE_TEST
#undef FLAG
#undef FLAG_TEST
#undef CX
#undef CX_TEST

// --- rows whose result is rounded to bf16 or f16: near_exp(a) ---

#define NEAR(op, ...) \
  SG_FN float near_##op(float a, [[maybe_unused]] float b = 0) { return __VA_ARGS__; }
#include "librun/cuda/kernels/near_ops.def"
#undef NEAR

template <class T>
SG_FN Cx<T> real_complex(T re, T im) {
  return {re, im};
}
template <class T>
SG_FN Cx<T> real_polar(T size, T angle) {
  return rounded<T>(math::turned(size, angle));
}
template <class T>
SG_FN T complex_abs(Cx<T> a) {
  return math::length(a.re, a.im);
}
template <class T>
SG_FN T complex_angle(Cx<T> a) {
  return math::angle(a);
}

// --- conversions between lanes ---

template <class T>
SG_FN float to_f32(T x) {
  return static_cast<float>(x);
}
template <class T>
SG_FN float to_f32(Cx<T> x) {
  return static_cast<float>(x.re);
}
template <class T>
SG_FN double to_f64(T x) {
  return static_cast<double>(x);
}
template <class T>
SG_FN double to_f64(Cx<T> x) {
  return static_cast<double>(x.re);
}
template <class T>
SG_FN int64_t to_i64(T x) {
  return whole_of(x);
}
template <class T>
SG_FN int64_t to_i64(Cx<T> x) {
  return whole_of(x.re);
}
template <class T>
SG_FN bool to_b8(T x) {
  return x != 0;
}
template <class T>
SG_FN bool to_b8(Cx<T> x) {
  return x.re != 0 || x.im != 0;
}
template <class T>
SG_FN Cx<float> to_c64(T x) {
  return {static_cast<float>(x), 0};
}
template <class T>
SG_FN Cx<float> to_c64(Cx<T> x) {
  return {static_cast<float>(x.re), static_cast<float>(x.im)};
}
template <class T>
SG_FN Cx<double> to_c128(T x) {
  return {static_cast<double>(x), 0};
}
template <class T>
SG_FN Cx<double> to_c128(Cx<T> x) {
  return {static_cast<double>(x.re), static_cast<double>(x.im)};
}

// --- contiguous elements ---

// `N` contiguous elements, read and written at once.
template <class Raw, int N>
struct alignas(sizeof(Raw) * N <= 16 ? sizeof(Raw) * N : 16) Pack {
  Raw of[N];
};
template <int N, class Raw>
SG_FN Pack<Raw, N> load_pack(const Raw* from) {
  return *reinterpret_cast<const Pack<Raw, N>*>(from);
}
template <class Raw, int N>
SG_FN void store_pack(Raw* to, const Pack<Raw, N>& x) {
  *reinterpret_cast<Pack<Raw, N>*>(to) = x;
}

}  // namespace sg::cuda

#ifdef SG_HOST_KERNELS
// The driver's stand-in finds the kernels of a library by this function.
extern "C" __attribute__((visibility("default"), used)) const void* sg_generated_kernels() {
  return &sg::cuda::host_kernels();
}
#endif
