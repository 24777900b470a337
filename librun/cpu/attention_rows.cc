#include "librun/cpu/attention_rows.h"

#include "librun/cpu/isa.h"
#include "librun/work/math.h"

namespace sg::cpu {
namespace {

constexpr int64_t kLanes = 16;  // partial results side by side: the order of a sum is the same on every machine

template <class T, class Term>
SG_INLINE T sum_lanes(int64_t n, const Term& term) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  for (int64_t l = 0; i + l < n; ++l) lanes[l] += term(i + l);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

template <class T>
SG_INLINE T max_of(const T* s, int64_t n) {
  T lanes[kLanes];
  for (T& lane : lanes) lane = static_cast<T>(-math::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = s[i + l] > lanes[l] ? s[i + l] : lanes[l];
  for (; i < n; ++i) lanes[0] = s[i] > lanes[0] ? s[i] : lanes[0];
  for (T lane : lanes) lanes[0] = lane > lanes[0] ? lane : lanes[0];
  return lanes[0];
}

// What the exponential is taken of is worked out in double, as the exponential is: it would be the largest error
// otherwise.
template <class T>
SG_INLINE T exp_of(T* s, int64_t n, double scale, double shift) {
  for (int64_t i = 0; i < n; ++i) s[i] = static_cast<T>(math::Wide<T>::exp(static_cast<double>(s[i]) * scale - shift));
  return sum_lanes<T>(
      n, [&](int64_t i) __attribute__((always_inline)) { return s[i]; });
}

}  // namespace

SG_CLONES float max_of_scores(const float* s, int64_t n) { return max_of(s, n); }
SG_CLONES double max_of_scores(const double* s, int64_t n) { return max_of(s, n); }
SG_CLONES float exp_row(float* s, int64_t n, double scale, double shift) { return exp_of(s, n, scale, shift); }
SG_CLONES double exp_row(double* s, int64_t n, double scale, double shift) { return exp_of(s, n, scale, shift); }

SG_CLONES void scale_row(float* s, int64_t n, float by) {
  for (int64_t i = 0; i < n; ++i) s[i] *= by;
}
SG_CLONES void scale_row(double* s, int64_t n, double by) {
  for (int64_t i = 0; i < n; ++i) s[i] *= by;
}

SG_CLONES void softmax_grad_row(float* grad, const float* p, int64_t n, float delta) {
  for (int64_t i = 0; i < n; ++i) grad[i] = p[i] * (grad[i] - delta);
}
SG_CLONES void softmax_grad_row(double* grad, const double* p, int64_t n, double delta) {
  for (int64_t i = 0; i < n; ++i) grad[i] = p[i] * (grad[i] - delta);
}

SG_CLONES float dot_row(const float* a, const float* b, int64_t n) {
  return sum_lanes<float>(
      n, [&](int64_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}
SG_CLONES double dot_row(const double* a, const double* b, int64_t n) {
  return sum_lanes<double>(
      n, [&](int64_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}

}  // namespace sg::cpu
